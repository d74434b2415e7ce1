// A range input with its label, in the looks of ipywidgets' own boxes.
function render({ model, el }) {
  const make = (tag, to, attributes = {}) => {
    const e = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
    return to.appendChild(e);
  };
  const box = make("label", el, { class: "widget-inline-hbox", title: "seconds to wait between two steps, for watching",
                                  style: "display: flex; align-items: center; gap: 6px; margin: 2px; width: 280px" });
  make("span", box, { class: "widget-label", style: "width: auto" }).textContent = "delay s";
  const line = make("input", box, { type: "range", min: 0, max: 2, step: 0.05, style: "flex: 1; accent-color: var(--jp-brand-color1, #1976d2)" });
  const said = make("output", box, { class: "widget-readout", style: "min-width: 4ch; text-align: right" });
  const show = () => {
    line.value = model.get("value");
    said.textContent = model.get("value").toFixed(2);
  };
  line.addEventListener("input", () => {
    model.set("value", Number(line.value));
    model.save_changes();
  });
  model.on("change:value", show);
  show();
  return () => model.off("change:value", show);
}

export default { render };
