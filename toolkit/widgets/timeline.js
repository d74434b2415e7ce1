// The time strip: one bar a step, as high as its tokens, many to a pixel where there are many. A slider by pointer and keyboard.
// The list lives with the model, not with a view: it begins with the widget's state and grows by messages.
function make(name, attributes, parent) {
  const node = document.createElement(name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  parent?.append(node);
  return node;
}

export default () => {
  let tokens = [];
  const views = new Set();
  const redraw = () => views.forEach((draw) => draw());

  function initialize({ model }) {
    const read = () => { tokens = [...(model.get("tokens") || [])]; redraw(); };
    read();
    model.on("change:tokens", read);
    model.on("msg:custom", (message) => {
      if (message.kind !== "add") return;
      if (message.from > tokens.length) { model.send({ kind: "gap" }); return; }
      tokens.length = message.from;                  // what comes after was rewound
      for (const n of message.tokens) tokens.push(n);
      redraw();
    });
  }

  function render({ model, el }) {
    const root = make("div", { class: "sd-timeline" }, el);
    const strip = make("div", { class: "strip", tabindex: "0", role: "slider", "aria-label": "step shown", "aria-orientation": "horizontal" }, root);
    const canvas = make("canvas", { "aria-hidden": "true" }, strip);
    const thumb = make("div", { class: "thumb", "aria-hidden": "true" }, strip);
    const said = make("span", { class: "said" }, root);
    const follow = make("button", { type: "button", title: "show the newest step (End)" }, root);
    follow.textContent = "newest";

    // `held` is what the hand wants, and wins over the model until it lets go; at most one wish a frame is sent.
    let held = null, sent = null, frame = 0, dragging = false, dirty = true, width = 0, height = 0, top = 1;
    const count = () => Math.max(model.get("steps") || 0, tokens.length);
    const asked = () => Math.min(held ?? model.get("shown") ?? -1, count() - 1);
    const place = () => (asked() < 0 ? count() - 1 : asked());

    function bars() {
      dirty = false;
      const n = count(), ratio = window.devicePixelRatio || 1, style = getComputedStyle(strip);
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
      const pen = canvas.getContext("2d");
      if (!n || !pen) return;
      pen.fillStyle = style.color;                   // the theme's, also where colours are forced
      top = 1;
      for (let i = 0; i < n; i++) top = Math.max(top, tokens[i] ?? 1);
      // Never more columns than pixels: a column of many steps is as high as their mean, and lighter up to the largest.
      const columns = Math.min(n, canvas.width), wide = canvas.width / columns, gap = wide > 3 * ratio ? ratio : 0;
      for (let c = 0; c < columns; c++) {
        const first = Math.floor((c * n) / columns), end = Math.max(first + 1, Math.floor(((c + 1) * n) / columns));
        let sum = 0, most = 0;
        for (let i = first; i < end; i++) { const v = tokens[i] ?? 1; sum += v; most = Math.max(most, v); }
        const bar = (value, alpha) => {
          const h = (value / top) * canvas.height;
          pen.globalAlpha = alpha;
          pen.fillRect(c * wide, canvas.height - h, Math.max(1, wide - gap), h);
        };
        if (end - first > 1) bar(most, 0.35);
        bar(sum / (end - first), end - first > 1 ? 0.65 : 1);
      }
    }

    function draw() {
      frame = 0;
      if (dirty) bars();
      const n = count(), at = place(), following = asked() < 0;
      strip.setAttribute("aria-valuemin", 0);
      strip.setAttribute("aria-valuemax", Math.max(0, n - 1));
      strip.setAttribute("aria-valuenow", Math.max(0, at));
      const emitted = tokens[at] === undefined ? "" : `, ${tokens[at]} token${tokens[at] === 1 ? "" : "s"}`;
      const text = n ? `step ${at} of ${n}${emitted}` : "no step yet";
      strip.setAttribute("aria-valuetext", following && n ? text + ", following the newest" : text);
      said.textContent = text;
      follow.setAttribute("aria-pressed", following);
      thumb.hidden = !n;
      thumb.style.width = Math.max(3, width / Math.max(1, n)) + "px";
      thumb.style.transform = `translateX(${Math.min(n ? (at * width) / n : 0, Math.max(0, width - 3))}px)`;
      root.dataset.shown = at;
      if (held !== null && held !== sent) {
        sent = held;
        model.set("shown", held);
        model.save_changes();
      }
      if (!dragging) { held = null; sent = null; }
    }

    const later = () => { frame ||= requestAnimationFrame(draw); };
    const fresh = () => { dirty = true; later(); };

    function want(step) {
      held = step >= count() ? -1 : Math.max(step, step < 0 ? -1 : 0);
      later();
    }

    const under = (event) => {
      const box = strip.getBoundingClientRect();
      const step = Math.floor(((event.clientX - box.left - strip.clientLeft) / Math.max(1, strip.clientWidth)) * count());
      return Math.max(0, Math.min(step, count() - 1));
    };
    strip.addEventListener("pointerdown", (event) => {
      if (event.button || !count()) return;
      dragging = true;
      strip.setPointerCapture?.(event.pointerId);
      want(under(event));
    });
    strip.addEventListener("pointermove", (event) => { if (dragging) want(under(event)); });
    const release = () => { dragging = false; later(); };
    strip.addEventListener("pointerup", release);
    strip.addEventListener("pointercancel", release);
    strip.addEventListener("lostpointercapture", release);
    follow.addEventListener("click", () => want(asked() < 0 ? count() - 1 : -1));
    strip.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || !count()) return;
      const page = Math.max(1, Math.round(count() / 10)), at = place();
      const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: page, PageDown: -page }[event.key];
      if (by !== undefined) want(asked() < 0 && by > 0 ? -1 : at + by >= count() ? -1 : Math.max(0, at + by));
      else if (event.key === "Home") want(0);
      else if (event.key === "End") want(-1);
      else return;
      event.preventDefault();
      event.stopPropagation();                       // JupyterLab would move between cells
    });

    const sized = new ResizeObserver(() => { width = strip.clientWidth; height = strip.clientHeight; fresh(); });
    sized.observe(strip);
    const themed = new MutationObserver(fresh);      // a canvas keeps its colours when the theme goes
    themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    const scheme = window.matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", fresh);
    views.add(fresh);
    model.on("change:steps", fresh);
    model.on("change:shown", later);
    return () => {
      views.delete(fresh);
      sized.disconnect();
      themed.disconnect();
      scheme.removeEventListener("change", fresh);
      model.off("change:steps", fresh);
      model.off("change:shown", later);
      cancelAnimationFrame(frame);
    };
  }

  return { initialize, render };
};
