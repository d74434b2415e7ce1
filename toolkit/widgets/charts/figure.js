// A plotly figure of several that share one copy of plotly: each copy is megabytes to send, to read and to keep.
const RENDERED = "plotlywidget-after-render";
const LONGEST = 10_000, REST = 250;       // milliseconds: for a first drawing, for one after an order
const READY = 2_200;                      // until whatever was made together is ready
const ORDERS = ["update", "restyle", "relayout", "addTraces", "deleteTraces", "moveTraces"].map((what) => "_py2js_" + what);

// After every order plotly compares the whole figure with what was asked for, and sends the kernel the difference: an answer
// that nobody reads.
function quiet(plotly) {
  const view = plotly.FigureView?.prototype;
  if (view) view._sendTraceDeltas = view._sendLayoutDelta = () => {};
  return plotly;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// Until plotly says that an element's first drawing is done; a drawing that fails says nothing.
function finished(el) {
  return Promise.race([pause(LONGEST), new Promise((done) => {
    const hear = ({ detail }) => { if (detail.element === el) { document.removeEventListener(RENDERED, hear); done(); } };
    document.addEventListener(RENDERED, hear);
  })]);
}

// `calm`: when other widgets are ready.
async function shared(model, calm) {
  const library = await model.widget_manager.get_model(model.get("_library").slice("IPY_MODEL_".length));
  if (!library.plotly) {
    await pause(calm - performance.now());
    await new Promise((done) => requestIdleCallback(done, { timeout: 1000 }));
  }
  library.plotly ??= (async () => {
    const url = URL.createObjectURL(new Blob([library.get("code")], { type: "text/javascript" }));
    try { return quiet(await import(url)); } finally { URL.revokeObjectURL(url); }
  })();
  return (await library.plotly).default();
}

export default () => {
  let own, born, figure, ready, heard = null;  // own: only it can take back what was heard through it
  const early = [];                         // orders that came before there was anybody to follow them, a few
  const keep = ORDERS.map((name) => [name, () => own.get(name) && early.push([name, own.get(name)]) > 20 && (ready ??= prepare())]);

  async function prepare() {
    figure = await shared(own, born + READY);
    for (const [name, note] of keep) own.off("change:" + name, note);
    figure.initialize({ model: Object.create(own, { on: { value: (event, f) => { heard?.push([event, f]); own.on(event, f); } } }) });
    for (const [name, order] of early) { own.set(name, null); own.set(name, order); }
  }

  return {
    // A model that takes two seconds to get ready is given up by anywidget and never hears of anything again, and reading
    // plotly can keep a busy machine's page that long from all of them: it is read for the first view, when those that came with
    // it are ready.
    initialize({ model }) {
      own = model;
      born = performance.now();
      for (const [name, note] of keep) model.on("change:" + name, note);
    },
    async render({ model, el }) {
      el.classList.add("sd-figure");
      await (ready ??= prepare());
      // plotly's view goes on listening when it is taken from the page, and fails at the next order: what it listens to is noted.
      // It fails as well when it is taken away in the middle of a drawing, which lasts beyond the call: that is waited for.
      let mine, end, drawn, seen = true, missed = false, gone = false;
      const deaf = () => { for (const [event, f] of mine) own.off(event, f); };
      const draw = () => { drawn = finished(el); mine = heard = []; end = figure.render({ model, el }); heard = null; };
      const rested = async () => { await drawn; await pause(REST); };
      const note = () => { missed ||= !seen; };
      const redraw = async () => {
        missed = false;
        await rested();
        if (gone || !seen) { missed = true; return; }
        deaf();
        end();
        draw();
      };
      // A chart that is out of sight hears nothing, and is drawn from the model when it comes back.
      const watch = new IntersectionObserver((changes) => {
        const now = changes.at(-1).isIntersecting;
        if (now === seen) return;
        seen = now;
        if (!seen) deaf();
        else if (missed) redraw();
        else for (const [event, f] of mine) own.on(event, f);
      }, { rootMargin: "100px" });
      draw();
      for (const name of ORDERS) own.on("change:" + name, note);
      watch.observe(el);
      return () => {
        gone = true;
        watch.disconnect();
        deaf();
        for (const name of ORDERS) own.off("change:" + name, note);
        rested().then(end);
      };
    },
  };
};
