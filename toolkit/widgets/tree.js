// The token-tree view. Nodes are keyed by index: only what changed is touched. All text is set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";
const MARKS = { pending: "▸", kept: "✓", rejected: "✗", unreached: "·", bonus: "+", correction: "↻", folded: "…" };
const NAMES = { pending: "pending", kept: "accepted", rejected: "rejected", unreached: "not reached", bonus: "bonus",
  correction: "correction", folded: "folded away" };
const RADII = { rejected: 0, bonus: 11, correction: 11, folded: 11 };
const TALLEST = 480, LOWEST = 216, SMALLEST = 0.7, FAR = 0.5;

function make(name, attributes, parent) {
  const node = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (parent) parent.append(node);
  return node;
}

function set(node, key, value, memory) {
  if (memory[key] === value) return;
  memory[key] = value;
  node.setAttribute(key, value);
}

function render({ model, el }) {
  const id = `sd${Math.random().toString(36).slice(2)}`;
  const root = make("div", { class: "sd-tree" }, el);
  const bar = make("div", { class: "sd-bar" }, root);
  const pane = make("div", { class: "sd-pane", tabindex: "0", role: "tree", "aria-label": "no step yet" }, root);
  const svg = make("svg:svg", { role: "presentation" }, pane), world = make("svg:g", { role: "presentation" }, svg);
  const edges = make("svg:g", { "aria-hidden": "true" }, world), nodes = make("svg:g", { role: "presentation" }, world);
  const card = make("div", { class: "sd-card", hidden: "" }, root);
  const said = make("div", { class: "sd-said", hidden: "" }, root);
  const legend = make("div", { class: "sd-legend", "aria-hidden": "true" }, root);
  for (const s of ["kept", "rejected", "unreached", "bonus", "correction"]) {
    make("span", { class: "sd-key " + s }, legend).textContent = `${MARKS[s]} ${NAMES[s]}`;
  }
  const live = make("div", { class: "sd-live", "aria-live": "polite" }, root);
  const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const drawn = new Map();
  let frame = 0, hovered = -1, spoken = 0, began = 0, cost = model.get("cost"), playing = 0;
  let opened = new Set(), step = null, told = null, asked = null, placed = null;
  let zoom = null, pan = { x: 0, y: 0 };   // zoom null: fit

  const button = (text, title, act, at = bar) => {
    const b = make("button", { type: "button", title, "aria-label": title }, at);
    b.textContent = text;
    b.addEventListener("click", act);
    return b;
  };
  button("−", "zoom out", () => zoomBy(1 / 1.25));
  button("fit", "fit the tree into the pane", () => { zoom = null; pan = { x: 0, y: 0 }; later(); });
  button("+", "zoom in", () => zoomBy(1.25));
  const hide = make("label", {}, bar);
  hide.textContent = "hide below ";
  const limit = make("select", { title: "fold away untested nodes less likely than this along their path" }, hide);
  for (const [value, text] of [[-1, "automatic"], [0, "nothing"], [0.001, "0.1 %"], [0.01, "1 %"], [0.05, "5 %"], [0.2, "20 %"]]) {
    make("option", { value }, limit).textContent = text;
  }
  limit.addEventListener("change", () => put("collapse_below", Number(limit.value)));
  const width = make("label", {}, bar);
  width.textContent = "width by ";
  const by = make("select", { title: "what the width of a line shows" }, width);
  make("option", { value: "p" }, by).textContent = "target p";
  make("option", { value: "q" }, by).textContent = "draft q";
  by.addEventListener("change", () => put("weight_by", by.value));
  const walks = make("span", { class: "sd-walks" }, bar);
  button("←", "walk back by one test (P)", () => go(model.get("walked") - 1), walks);
  const play = button("walk", "walk through the tests of this step", () => (playing ? halt() : start()), walks);
  button("→", "walk on by one test (N)", () => go(model.get("walked") + 1), walks);
  button("✕", "end the walk", () => { halt(); put("walked", -1); }, walks);

  function put(name, value) { model.set(name, value); model.save_changes(); }
  const list = () => model.get("scene").nodes || [];

  // What the kernel knows beyond the picture: cards and the walk. A page without one has them in the scene.
  function more() {
    const scene = model.get("scene");
    if (scene.walk) return { walk: scene.walk, cards: scene.nodes.map((n) => n.card) };
    if (told?.step === scene.step) return told;
    if (asked !== scene.step) { asked = scene.step; model.send?.({ kind: "details", step: scene.step }); }
    return null;
  }
  const heard = (message) => {
    if (message.kind !== "details") return;
    told = message;
    showCard();
    showWalk();
  };

  // ---- drawing
  function shape(i) {
    if (drawn.has(i)) return drawn.get(i);
    const g = make("svg:g", { role: "treeitem" }, nodes);
    const v = { g, rect: make("svg:rect", { x: -W / 2, y: -H / 2, width: W, height: H }, g),
      text: make("svg:text", { "text-anchor": "middle", dy: 4 }, g), edge: make("svg:path", {}, edges), m: {}, r: {}, e: {} };
    g.addEventListener("pointerenter", () => { hovered = i; showCard(); });
    g.addEventListener("pointerleave", () => { hovered = -1; showCard(); });
    g.addEventListener("click", () => choose(i));
    drawn.set(i, v);
    return v;
  }

  function draw() {
    frame = 0;
    const scene = model.get("scene"), all = list();
    root.classList.toggle("empty", !all.length);
    if (scene.step !== step) { step = scene.step; opened = new Set(); asked = null; if (!all.length) halt(); }
    limit.value = String(model.get("collapse_below"));
    by.value = model.get("weight_by");
    if (!all.length) {
      drawn.forEach(remove);
      drawn.clear();
      placed = null;
      showCard();
      return finish(scene, 0);
    }
    const below = model.get("collapse_below"), weight = model.get("weight_by");
    placed = arrange(all, folded(all, below < 0 ? scene.below : below, opened));
    const seen = new Set();
    for (const at of placed.order) {
      const v = shape(at.i), n = at.n;
      seen.add(at.i);
      set(v.g, "id", `${id}-${at.i}`, v.m);
      set(v.g, "aria-level", at.depth + 1, v.m);
      set(v.g, "aria-label", `${n.label}, ${NAMES[n.state]}`, v.m);
      set(v.g, "transform", `translate(${at.x},${at.y})`, v.m);
      set(v.rect, "rx", RADII[n.state] ?? 5, v.r);
      const label = n.state === "folded" ? n.label : `${MARKS[n.state]} ${n.label}`;
      if (v.label !== label) v.text.textContent = v.label = label;
      let path = "";
      if (n.parent >= 0) {
        const p = placed.at.get(n.parent), x1 = p.x + W / 2, x2 = at.x - W / 2, mid = (x1 + x2) / 2;
        path = `M${x1},${p.y}C${mid},${p.y} ${mid},${at.y} ${x2},${at.y}`;
      }
      set(v.edge, "d", path, v.e);
      set(v.edge, "class", "edge " + n.state, v.e);
      set(v.edge, "stroke-width", (1 + 4 * Math.sqrt(n[weight])).toFixed(2), v.e);
    }
    drawn.forEach((v, i) => { if (!seen.has(i)) { remove(v); drawn.delete(i); } });
    view();
    showCard();
    showWalk();
    finish(scene, all.length);
  }
  function remove(v) { v.g.remove(); v.edge.remove(); }

  function finish(scene, count) {
    root.dataset.step = scene.step ?? "";
    root.dataset.nodes = count;
    const now = performance.now();
    if (now - spoken > 1000) { spoken = now; pane.setAttribute("aria-label", scene.summary || "no step yet"); }
  }

  function view() {   // where the tree stands in the pane
    if (!placed) return;
    const room = pane.clientWidth || 800;
    const scale = zoom ?? Math.max(SMALLEST, Math.min(1, room / placed.width, TALLEST / placed.height));
    const tall = Math.max(LOWEST, Math.min(TALLEST, Math.ceil(placed.height * scale)));
    if (pane.style.height !== `${tall}px`) pane.style.height = `${tall}px`;
    if (zoom === null) {   // what does not fit is shown around the kept path
      const kept = placed.order.filter((v) => ["pending", "kept", "bonus", "correction"].includes(v.n.state));
      const middle = (by) => kept.reduce((sum, v) => sum + v[by], 0) / kept.length * scale;
      pan = { x: room / 2 - middle("x"), y: tall / 2 - middle("y") };
    }
    const least = { x: Math.min(0, room - placed.width * scale), y: Math.min(0, tall - placed.height * scale) };
    pan = { x: Math.max(least.x, Math.min(0, pan.x)), y: Math.max(least.y, Math.min(0, pan.y)) };
    world.setAttribute("transform", `translate(${pan.x},${pan.y}) scale(${scale})`);
    root.classList.toggle("far", scale < FAR);
    root.dataset.zoom = scale.toFixed(2);
    return scale;
  }

  function zoomBy(factor, x = pane.clientWidth / 2, y = pane.clientHeight / 2) {
    const before = view() || 1, after = Math.max(0.15, Math.min(3, before * factor));
    pan = { x: x - (x - pan.x) * after / before, y: y - (y - pan.y) * after / before };
    zoom = after;
    view();
  }

  function reveal(i) {
    const at = placed?.at.get(i), scale = view();
    if (!at) return;
    if (zoom === null && placed.width * scale <= pane.clientWidth && placed.height * scale <= pane.clientHeight) return;
    zoom = scale;
    const x = at.x * scale + pan.x, y = at.y * scale + pan.y, dx = (W / 2 + MARGIN) * scale, dy = (H / 2 + MARGIN) * scale;
    pan.x -= Math.min(0, x - dx) + Math.max(0, x + dx - pane.clientWidth);
    pan.y -= Math.min(0, y - dy) + Math.max(0, y + dy - pane.clientHeight);
    view();
  }

  // ---- the card
  function showCard() {
    const i = hovered >= 0 ? hovered : model.get("chosen"), all = list(), at = placed?.at.get(i);
    const walked = reached();
    placed?.order.forEach(({ i: j, n }) => {
      const ahead = walked && !walked.has(j) ? " ahead" : "";
      const open = at && j === i ? " open" : "";
      const v = drawn.get(j);
      set(v.g, "class", `node ${n.state}${open}${ahead}`, v.m);
      set(v.g, "aria-selected", String(j === model.get("chosen")), v.m);
    });
    if (placed?.at.has(model.get("chosen"))) pane.setAttribute("aria-activedescendant", `${id}-${model.get("chosen")}`);
    else pane.removeAttribute("aria-activedescendant");
    card.hidden = !at;
    if (!at) return;
    card.replaceChildren();
    const lines = i < all.length ? more()?.cards[i] : [["folded away", `${at.n.label.slice(1)} nodes; Enter or a click opens them`]];
    for (const [name, value] of lines || [["token", at.n.label], ["outcome", NAMES[at.n.state]]]) {
      const line = make("div", {}, card);
      make("span", { class: "name" }, line).textContent = name;
      make("span", { class: "value" }, line).textContent = value;
    }
    // In a corner, away from the node: a card at the node would hide its children, and the pane would cut it off.
    const scale = view(), right = at.x * scale + pan.x < pane.clientWidth / 2;
    card.style.top = `${pane.offsetTop + 8}px`;
    card.style.left = right ? "auto" : "8px";
    card.style.right = right ? "8px" : "auto";
  }

  function choose(i) {
    if (i >= list().length) {   // "+n": open it, and go on from its parent
      opened.add(i - list().length);
      put("chosen", i - list().length);
      return draw();
    }
    put("chosen", i);
    if (i >= 0) reveal(i);
    showCard();
    const lines = i >= 0 && more()?.cards[i];
    live.textContent = lines ? lines.map((c) => c.join(" ")).join(", ") : "";
  }

  // ---- the walk through the tests
  function reached() {
    const at = model.get("walked"), walk = at >= 0 ? more()?.walk : null;
    return walk ? new Set(walk.slice(0, at + 1).map((s) => s.node)) : null;
  }
  function go(to) {
    const walk = more()?.walk;
    if (walk) put("walked", Math.max(-1, Math.min(walk.length - 1, to)));
    else if (to >= 0) put("walked", 0);
  }
  function start() {
    if (!list().length) return;
    if (still.matches) return go(model.get("walked") + 1);
    const walk = more()?.walk;
    if (!walk || model.get("walked") >= walk.length - 1) put("walked", 0);
    play.textContent = "hold";
    playing = setInterval(() => {
      const end = (more()?.walk.length || 2) - 1;
      if (model.get("walked") >= end) halt(); else go(model.get("walked") + 1);
    }, 1400);
  }
  function halt() { clearInterval(playing); playing = 0; play.textContent = "walk"; }
  function showWalk() {
    const at = model.get("walked"), walk = at >= 0 ? more()?.walk : null, stop = walk?.[Math.min(at, walk.length - 1)];
    said.hidden = at < 0 || !list().length;
    const text = stop ? `${at + 1} of ${walk.length}. ${stop.text}` : "…";
    if (!said.hidden && said.textContent !== text) said.textContent = live.textContent = text;
    root.dataset.walked = at;
    if (stop) reveal(stop.node);
  }
  const walkedOn = () => { showWalk(); showCard(); };

  // ---- hands
  pane.addEventListener("keydown", (event) => {
    const all = list(), i = model.get("chosen"), at = placed?.at.get(i);
    if (!all.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const level = at && placed.order.filter((v) => v.depth === at.depth).sort((a, b) => a.y - b.y);
    const beside = (by) => level?.[level.indexOf(at) + by]?.i;
    let to = null;
    switch (event.key) {
      case "Escape": to = -1; break;
      case "Home": to = 0; break;
      case "End": to = all.length - 1; break;
      case "ArrowRight": to = at ? placed.children.get(i)?.[0]?.i : 0; break;
      case "ArrowLeft": to = at ? at.n.parent : 0; break;
      case "ArrowDown": to = at ? beside(1) : 0; break;
      case "ArrowUp": to = at ? beside(-1) : 0; break;
      case "Enter": case " ": to = i; break;
      case "n": go(model.get("walked") + 1); break;
      case "p": go(model.get("walked") - 1); break;
      case "+": zoomBy(1.25); break;
      case "-": zoomBy(1 / 1.25); break;
      case "0": zoom = null; pan = { x: 0, y: 0 }; view(); break;
      default: return;
    }
    event.preventDefault();
    event.stopPropagation();                       // JupyterLab would move between cells
    if (to === null || to === undefined || (to < 0 && event.key !== "Escape")) return;
    if (to >= all.length && !["Enter", " "].includes(event.key)) { put("chosen", to); reveal(to); showCard(); }
    else choose(to);
  });
  pane.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;   // the page scrolls
    event.preventDefault();
    const box = pane.getBoundingClientRect();
    zoomBy(event.deltaY < 0 ? 1.15 : 1 / 1.15, event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  let drag = null;
  pane.addEventListener("pointerdown", (event) => { if (event.button === 0) drag = { x: event.clientX, y: event.clientY, from: { ...pan } }; });
  pane.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    if (!drag.moved) { drag.moved = true; zoom = view(); pane.setPointerCapture(event.pointerId); }
    pan = { x: drag.from.x + dx, y: drag.from.y + dy };
    view();
  });
  for (const end of ["pointerup", "pointercancel"]) pane.addEventListener(end, () => { drag = null; });

  // ---- life
  function told_cost() {   // how long the page worked on this picture, with all that was drawn in the same frame
    if (!began) return;
    cost = here ? 0.7 * cost + 0.3 * (performance.now() - began) : 0;
    began = 0;
    if (Math.abs(cost - model.get("cost")) > 0.25 * model.get("cost")) put("cost", cost);
  }
  const channel = new MessageChannel();   // its messages come after the frame
  channel.port1.onmessage = told_cost;
  const later = () => {   // the newest wins, nothing queues
    if (frame) return;
    began ||= performance.now();
    frame = requestAnimationFrame(() => { draw(); channel.port2.postMessage(0); });
  };
  const resized = new ResizeObserver(() => view());
  resized.observe(pane);
  const listens = { "change:scene": later, "change:collapse_below": later, "change:weight_by": later,
    "change:chosen": showCard, "change:walked": walkedOn, "msg:custom": heard };
  for (const event in listens) model.on(event, listens[event]);
  draw();
  return () => {
    cancelAnimationFrame(frame);
    halt();
    resized.disconnect();
    channel.port1.close();
    for (const event in listens) model.off(event, listens[event]);
  };
}
export default { render };
