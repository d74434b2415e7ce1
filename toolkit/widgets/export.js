// The hands of an exported page: a scrubber over all steps, rows, play. `views` are the widgets' own modules.
const $ = (id) => document.getElementById(id);

function shown(view, model, el) {
  const made = typeof view === "function" ? view() : view;
  made.initialize?.({ model });
  made.render({ model, el });
}

async function main(views) {
  const run = await unpacked("run");
  const tree = new Model({ scene: {}, chosen: -1, collapse_below: -1, weight_by: "p", walked: -1, cost: 0 });
  const text = new Model({ prompt: "", pieces: [], ms: [], shown: -1, clicked: -1 });
  let row = 0, step = -1, playing = 0;
  const scrubber = $("step"), last = () => run.rows[row].scenes.length - 1;

  function show(to) {
    step = Math.max(0, Math.min(last(), to));
    const scene = run.rows[row].scenes[step];
    tree.set("walked", -1);
    tree.set("chosen", -1);
    tree.set("scene", scene || {});
    text.set("shown", step);
    scrubber.value = step;
    scrubber.setAttribute("aria-valuetext", scene ? scene.summary : `Step ${step}: this row had ended`);
    $("at").textContent = `step ${step} of ${last()}`;
  }
  function choose(to) {
    row = to;
    scrubber.max = last();
    text.set("prompt", run.rows[row].prompt);
    text.set("ms", run.rows[row].ms);
    text.set("pieces", run.rows[row].pieces);
    show(last());
  }
  function halt() { clearInterval(playing); playing = 0; $("play").textContent = "Play"; }
  $("play").addEventListener("click", () => {
    if (playing) return halt();
    if (step === last()) show(0);
    $("play").textContent = "Pause";
    playing = setInterval(() => (step === last() ? halt() : show(step + 1)), Number($("speed").value));
  });
  $("back").addEventListener("click", () => { halt(); show(step - 1); });
  $("on").addEventListener("click", () => { halt(); show(step + 1); });
  scrubber.addEventListener("input", () => { halt(); show(Number(scrubber.value)); });
  $("row").addEventListener("change", () => { halt(); choose(Number($("row").value)); });
  text.on("change:clicked", () => { halt(); show(text.get("clicked")); });

  choose(0);
  shown(views.tree, tree, $("tree"));
  shown(views.ribbon, text, $("text"));
  if (run.charts && globalThis.Plotly) {
    await globalThis.Plotly.newPlot($("charts"), run.charts.data, run.charts.layout, { displaylogo: false, responsive: true });
  }
  document.body.dataset.ready = "yes";
}
