// A plotly figure of several that share one copy of plotly: each copy is megabytes to send, to read and to keep.
const ORDERS = ["_py2js_update", "_py2js_restyle", "_py2js_relayout"];

async function shared(model) {
  const library = await model.widget_manager.get_model(model.get("_library").slice("IPY_MODEL_".length));
  library.plotly ??= (async () => {
    const url = URL.createObjectURL(new Blob([library.get("code")], { type: "text/javascript" }));
    try { return await import(url); } finally { URL.revokeObjectURL(url); }
  })();
  return (await library.plotly).default();
}

export default () => {
  let figure;
  return {
    async initialize({ model }) {
      const early = [];                                // orders that came before there was anybody to follow them
      const keep = ORDERS.map((name) => [name, () => model.get(name) && early.push([name, model.get(name)])]);
      for (const [name, note] of keep) model.on("change:" + name, note);
      figure = await shared(model);
      for (const [name, note] of keep) model.off("change:" + name, note);
      figure.initialize({ model });
      for (const [name, order] of early) { model.set(name, null); model.set(name, order); }
    },
    render: (context) => figure.render(context),
  };
};
