// The text ribbon: one span a token, coloured and underlined by how it came; a click asks for its step.
function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "sd-ribbon";
  root.tabIndex = 0;
  root.setAttribute("role", "log");
  root.setAttribute("aria-label", "generated text");
  el.append(root);

  function add(pieces) {
    const atEnd = root.scrollHeight - root.scrollTop - root.clientHeight < 40;
    for (const [text, origin, step] of pieces) {
      const span = document.createElement("span");
      span.className = "piece " + origin;
      span.dataset.step = step;
      span.title = `${origin}, step ${step}`;
      span.textContent = text;
      root.append(span);
    }
    if (atEnd) root.scrollTop = root.scrollHeight;
    mark();
  }

  function reset(prompt) {
    root.replaceChildren();
    const span = document.createElement("span");
    span.className = "prompt";
    span.textContent = prompt;
    root.append(span);
  }

  function mark() {
    const shown = String(model.get("shown"));
    root.querySelectorAll(".shown").forEach((s) => s.dataset.step !== shown && s.classList.remove("shown"));
    root.querySelectorAll(`[data-step="${shown}"]`).forEach((s) => s.classList.add("shown"));
  }

  const onMessage = (message) => {
    if (message.kind === "reset") reset(message.prompt);
    if (message.kind === "reset" || message.kind === "add") add(message.pieces);
  };
  root.addEventListener("click", (event) => {
    const step = event.target.dataset?.step;
    if (step === undefined) return;
    model.set("clicked", -1);          // so that a second click on the same step counts too
    model.set("clicked", Number(step));
    model.save_changes();
  });
  model.on("msg:custom", onMessage);
  model.on("change:shown", mark);
  model.send({ kind: "ready" });
  return () => { model.off("msg:custom", onMessage); model.off("change:shown", mark); };
}
export default { render };
