// The text ribbon: one span a token, marked by how it came and what it cost. A click, or arrow keys and Enter, ask for its step.
// The list lives with the model, not with a view: it begins with the widget's state and grows by messages.
const BLOCK = 128;                     // tokens a block, about: blocks out of sight cost the browser nothing
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/u;   // what would act on its surroundings, or show nothing
const NAMED = { "\n": "↵", "\t": "⇥", "\r": "␍" };
const ORIGINS = { accepted: "accepted guess", bonus: "bonus of the target", correction: "correction by the target" };

function make(name, attributes, parent) {
  const node = document.createElement(name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  parent?.append(node);
  return node;
}

const hidden = (c) => c !== "\u200d" && HIDDEN.test(c);
const named = (c) => NAMED[c] ?? "\\u" + c.codePointAt(0).toString(16).padStart(4, "0");

function write(node, text) {           // text only: a token is never markup, and direction marks never reach the page
  let plain = "";
  for (const c of text) {
    if (!hidden(c)) { plain += c; continue; }
    node.append(plain);
    plain = "";
    make("i", { "data-mark": named(c) }, node).textContent = c === "\n" || c === "\t" ? c : "";
  }
  node.append(plain);
}

function visible(text) { return [...text].map((c) => (c === " " ? "␣" : hidden(c) ? named(c) : c)).join("") || "∅"; }

export default () => {
  let pieces = [], ms = [];
  const views = new Set();

  function initialize({ model }) {
    const read = () => { pieces = [...(model.get("pieces") || [])]; ms = [...(model.get("ms") || [])]; views.forEach((v) => v.reset()); };
    read();
    model.on("change:pieces", read);
    model.on("change:prompt", () => views.forEach((v) => v.reset()));
    model.on("msg:custom", (message) => {
      if (message.kind === "cut") {
        pieces.length = Math.min(pieces.length, message.to);
        ms.length = Math.min(ms.length, message.to);
        views.forEach((v) => v.cut(message.to));
      } else if (message.kind === "add") {
        if (message.from > pieces.length) { model.send({ kind: "gap" }); return; }
        const had = pieces.length;           // a state that was read late holds some of them already
        message.pieces.forEach((piece, k) => { pieces[message.from + k] = piece; ms[message.from + k] = message.ms?.[k]; });
        views.forEach((v) => v.add(had));
      }
    });
  }

  function render({ model, el }) {
    const root = make("div", { class: "sd-ribbon" }, el);
    const pane = make("div", { class: "sd-text", tabindex: "0", role: "group", "aria-roledescription": "text by tokens", "aria-label": "Generated text, token by token: arrow keys move, Enter shows the step" }, root);
    const card = make("div", { class: "sd-hover", role: "tooltip", hidden: "" }, root);
    const legend = make("div", { class: "sd-legend", "aria-hidden": "true" }, root);
    for (const origin in ORIGINS) make("span", { class: "key " + origin }, legend).textContent = ORIGINS[origin].split(" ")[0];
    make("span", { class: "cost" }, legend).textContent = "shade: ms a token";
    const live = make("div", { class: "sd-live", "aria-live": "polite" }, root);

    let spans = [], starts = new Map();              // a span a piece; where each step begins
    let block, filled = 0, scale = 0, spent = 0, cursor = -1, hovered = -1, marked = [];
    let atEnd = true, top = 0, frame = 0, followed = NaN;  // known without asking the page for its layout at every token
    pane.addEventListener("scroll", () => {          // text that grows is not a hand that scrolls up
      const near = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 40;
      if (near || pane.scrollTop < top) atEnd = near;
      top = pane.scrollTop;
      if (atEnd && model.get("shown") < 0) later();  // blocks that come into sight get their true height
    });
    const sized = new ResizeObserver(() => later()); // drawn before it was in the page, it had no end to go to
    sized.observe(pane);

    function settle() {
      frame = 0;
      mark();
      const asked = model.get("shown");
      if (asked >= 0 && asked !== followed && marked[0]) reveal(marked[0]);
      else if (asked < 0 && atEnd && pane.scrollHeight - pane.clientHeight > pane.scrollTop + 1) pane.scrollTop = pane.scrollHeight;
      followed = asked;
    }

    function later() { frame ||= requestAnimationFrame(settle); }

    function add(from) {
      for (let i = from; i < pieces.length; i++) {
        const [text, origin, step] = pieces[i];
        if (!starts.has(step)) starts.set(step, i);
        // A block ends with a line where it can, at a space where it must: nobody sees its edge.
        const last = pieces[i - 1]?.[0] ?? "";
        if (!block || (filled >= BLOCK && last.endsWith("\n")) || (filled >= 3 * BLOCK && /^\s/.test(text))) {
          block = make("div", { class: "sd-block" }, pane);
          filled = 0;
        }
        const span = make("span", { class: "piece " + origin, "data-i": i, "data-step": step }, block);
        if (origin === "accepted") span.dataset.depth = i - starts.get(step) + 1;
        if (ms[i] > 0) { span.style.setProperty("--ms", ms[i]); spent += ms[i]; }
        write(span, text);
        spans.push(span);
        filled++;
      }
      // A full shade is three times the mean, or nearly: a power of two, for a new scale restyles every token.
      const fit = 2 ** Math.round(Math.log2(3 * spent / spans.length || 1));
      if (fit !== scale) pane.style.setProperty("--scale", scale = fit);
      later();
    }

    function cut(to) {
      for (const span of spans.splice(to)) {
        const home = span.parentNode;
        spent -= Number(span.style.getPropertyValue("--ms"));
        span.remove();
        if (!home.hasChildNodes()) home.remove();
      }
      for (const [step, i] of [...starts].reverse()) { if (i < to) break; starts.delete(step); }
      block = spans.at(-1)?.parentNode;
      filled = block ? block.childElementCount : 0;
      if (cursor >= to) point(-1);
      if (hovered >= to) hovered = -1;
      show();
      later();
    }

    function reset() {
      atEnd = true;
      spans = []; starts = new Map(); marked = []; block = null; spent = 0; cursor = hovered = -1;
      pane.replaceChildren();
      write(make("bdi", { class: "prompt" }, pane), model.get("prompt") || "");
      add(0);
      show();
    }

    function mark() {
      const asked = model.get("shown"), step = asked >= 0 ? asked : pieces.at(-1)?.[2];
      for (const span of marked) span.classList.remove("shown");
      marked = [];
      for (let i = starts.get(step) ?? spans.length; i < spans.length && pieces[i][2] === step; i++) marked.push(spans[i]);
      for (const span of marked) span.classList.add("shown");
    }

    function reveal(span) {                          // inside the pane: the page itself must not move
      const a = span.getBoundingClientRect(), b = pane.getBoundingClientRect();
      if (a.top < b.top + 4) pane.scrollTop += a.top - b.top - 24;
      else if (a.bottom > b.bottom - 4) pane.scrollTop += a.bottom - b.bottom + 24;
    }

    function lines(i) {
      const [text, origin, step] = pieces[i], depth = spans[i].dataset.depth;
      let count = 0;
      for (let j = starts.get(step); j < pieces.length && pieces[j][2] === step; j++) count++;
      const told = [["token", visible(text)], ["came as", ORIGINS[origin] + (depth ? `, drafted at depth ${depth}` : "")], ["step", `${step}, with ${count} token${count > 1 ? "s" : ""}`]];
      if (ms[i] !== undefined) told.push(["cost", `${ms[i].toFixed(1)} ms, of ${(ms[i] * count).toFixed(1)} ms of its step`]);
      return told;
    }

    function show() {
      const i = hovered >= 0 ? hovered : cursor;
      card.hidden = i < 0 || !spans[i];
      if (card.hidden) return;
      card.replaceChildren();
      for (const [name, value] of lines(i)) {
        const line = make("div", {}, card);
        make("span", { class: "name" }, line).textContent = name;
        make("span", { class: "value" }, line).textContent = value;
      }
      // Below the token, or above it where there is no room; never outside the ribbon.
      const a = (spans[i].getClientRects()[0] ?? spans[i].getBoundingClientRect()), b = root.getBoundingClientRect();
      card.style.left = Math.max(4, Math.min(a.left - b.left, b.width - card.offsetWidth - 4)) + "px";
      card.style.top = a.bottom - b.top + 8 + "px";
    }

    function point(i) {
      spans[cursor]?.classList.remove("cursor");
      cursor = i;
      spans[cursor]?.classList.add("cursor");
      if (spans[cursor]) { reveal(spans[cursor]); live.textContent = lines(i).map((l) => l.join(" ")).join(", "); }
      show();
    }

    function jump(i) {
      const again = model.get("clicked") === pieces[i][2];
      model.set("clicked", pieces[i][2]);
      model.save_changes();
      if (again) model.send({ kind: "again" });      // no change to save, and yet it was chosen
    }

    const at = (event) => Number(event.target.closest?.("[data-i]")?.dataset.i ?? -1);
    pane.addEventListener("click", (event) => { const i = at(event); if (i >= 0) { point(i); jump(i); } });
    pane.addEventListener("pointerover", (event) => { hovered = at(event); show(); });
    pane.addEventListener("pointerleave", () => { hovered = -1; show(); });
    pane.addEventListener("blur", () => point(-1));
    pane.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || !spans.length) return;
      const begin = cursor >= 0 ? cursor : starts.get(model.get("shown")) ?? spans.length;
      const step = pieces[cursor]?.[2], after = [...starts.keys()];
      let to;
      if (event.key === "ArrowRight") to = cursor < 0 ? Math.min(begin, spans.length - 1) : cursor + 1;
      else if (event.key === "ArrowLeft") to = begin - 1;
      else if (event.key === "ArrowDown") to = starts.get(after[after.indexOf(step) + 1]) ?? spans.length - 1;
      else if (event.key === "ArrowUp") to = starts.get(after[Math.max(0, after.indexOf(step) - 1)]) ?? 0;
      else if (event.key === "Home") to = 0;
      else if (event.key === "End") to = spans.length - 1;
      else if (event.key === "Escape") { hovered = -1; to = -1; }
      else if (event.key === "Enter" && cursor >= 0) { to = cursor; jump(cursor); }
      else return;
      event.preventDefault();
      event.stopPropagation();                       // JupyterLab would move between cells
      hovered = -1;
      point(event.key === "Escape" ? -1 : Math.max(0, Math.min(to, spans.length - 1)));
    });

    const view = { add, cut, reset };
    views.add(view);
    model.on("change:shown", later);
    reset();
    return () => { views.delete(view); sized.disconnect(); model.off("change:shown", later); cancelAnimationFrame(frame); };
  }

  return { initialize, render };
};
