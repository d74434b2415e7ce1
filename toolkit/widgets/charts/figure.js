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
  let ready, figure, own, heard = null;   // own: only it can take back what was heard through it
  return {
    // A model that takes two seconds to get ready is given up by anywidget and never hears of anything again: plotly, which
    // takes that long on a busy machine, is waited for by the views alone.
    initialize({ model }) {
      const early = [];                                // orders that came before there was anybody to follow them
      const keep = ORDERS.map((name) => [name, () => model.get(name) && early.push([name, model.get(name)])]);
      for (const [name, note] of keep) model.on("change:" + name, note);
      ready = (async () => {
        figure = await shared(model);
        for (const [name, note] of keep) model.off("change:" + name, note);
        own = model;
        figure.initialize({ model: Object.create(model, { on: { value: (event, f) => { heard?.push([event, f]); model.on(event, f); } } }) });
        for (const [name, order] of early) { model.set(name, null); model.set(name, order); }
      })();
    },
    // plotly's view goes on listening when it is taken from the page, and fails at the next order: what it listens to is noted.
    async render(context) {
      await ready;
      const mine = heard = [];
      const end = figure.render(context);
      heard = null;
      return () => { for (const [event, f] of mine) own.off(event, f); end(); };
    },
  };
};
