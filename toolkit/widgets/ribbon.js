// The text ribbon: one span a token, coloured and underlined by how it came; a click asks for its step.
// The list lives with the model, not with a view: it begins with the widget's state and grows by messages.
export default () => {
  let pieces = [];
  const views = new Set();

  function initialize({ model }) {
    pieces = [...(model.get("pieces") || [])];
    model.on("change:pieces", () => { pieces = [...model.get("pieces")]; views.forEach((v) => v.reset()); });
    model.on("change:prompt", () => views.forEach((v) => v.reset()));
    model.on("msg:custom", (message) => {
      if (message.kind !== "add") return;
      if (message.from > pieces.length) { model.send({ kind: "gap" }); return; }
      const fresh = message.pieces.slice(pieces.length - message.from);
      pieces.push(...fresh);
      views.forEach((v) => v.add(fresh));
    });
  }

  function render({ model, el }) {
    const root = document.createElement("div");
    root.className = "sd-ribbon";
    root.tabIndex = 0;
    root.setAttribute("role", "log");
    root.setAttribute("aria-label", "generated text");
    el.append(root);

    let atEnd = true, frame = 0;  // known without asking the page for its layout at every token
    root.addEventListener("scroll", () => { atEnd = root.scrollHeight - root.scrollTop - root.clientHeight < 40; });

    function settle() {
      frame = 0;
      mark();
      if (atEnd) root.scrollTop = root.scrollHeight;
    }

    function add(fresh) {
      for (const [text, origin, step] of fresh) {
        const span = document.createElement("span");
        span.className = "piece " + origin;
        span.dataset.step = step;
        span.title = `${origin}, step ${step}`;
        span.textContent = text;
        root.append(span);
      }
      later();
    }

    function later() { frame ||= requestAnimationFrame(settle); }

    function reset() {
      atEnd = true;
      const span = document.createElement("span");
      span.className = "prompt";
      span.textContent = model.get("prompt");
      root.replaceChildren(span);
      add(pieces);
    }

    function mark() {
      const asked = model.get("shown"), shown = String(asked >= 0 ? asked : pieces.at(-1)?.[2] ?? -1);
      root.querySelectorAll(".shown").forEach((s) => s.dataset.step !== shown && s.classList.remove("shown"));
      root.querySelectorAll(`[data-step="${shown}"]`).forEach((s) => s.classList.add("shown"));
    }

    root.addEventListener("click", (event) => {
      const step = event.target.dataset?.step;
      if (step === undefined) return;
      model.set("clicked", -1);          // so that a second click on the same step counts too
      model.set("clicked", Number(step));
      model.save_changes();
    });
    const view = { add, reset };
    views.add(view);
    model.on("change:shown", later);
    reset();
    return () => { views.delete(view); model.off("change:shown", later); cancelAnimationFrame(frame); };
  }

  return { initialize, render };
};
