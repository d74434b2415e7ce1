// The token-tree view. No imports, so it needs no network. Nodes are keyed by index: only what changed is touched.
const SVG = "http://www.w3.org/2000/svg";
const W = 84, H = 22;
const RADII = { rejected: 0, bonus: 11, correction: 11 };

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
  const root = make("div", { class: "sd-tree", tabindex: "0", role: "group", "aria-roledescription": "token tree" }, el);
  const pane = make("div", { class: "sd-pane" }, root);
  const svg = make("svg:svg", {}, pane);
  const edges = make("svg:g", {}, svg), nodes = make("svg:g", {}, svg);
  const card = make("div", { class: "sd-card", role: "tooltip", hidden: "" }, root);
  const legend = make("div", { class: "sd-legend", "aria-hidden": "true" }, root);
  for (const [state, text] of [["kept", "✓ accepted"], ["rejected", "✗ rejected"], ["unreached", "· not reached"],
    ["bonus", "+ bonus"], ["correction", "↻ correction"]]) {
    make("span", { class: "sd-key " + state }, legend).textContent = text;
  }
  const live = make("div", { class: "sd-live", "aria-live": "polite" }, root);
  const drawn = [];
  let frame = 0, hovered = -1, spoken = 0, began = 0, cost = model.get("cost");
  const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

  function node(i) {
    if (drawn[i]) return drawn[i];
    const g = make("svg:g", {}, nodes);
    const v = { g, rect: make("svg:rect", { x: -W / 2, y: -H / 2, width: W, height: H }, g),
      text: make("svg:text", { "text-anchor": "middle", dy: 4 }, g), edge: make("svg:path", {}, edges), m: {}, r: {}, e: {} };
    g.addEventListener("pointerenter", () => { hovered = i; showCard(); });
    g.addEventListener("pointerleave", () => { hovered = -1; showCard(); });
    g.addEventListener("click", () => focus(i));
    return (drawn[i] = v);
  }

  function draw() {
    frame = 0;
    const scene = model.get("scene"), list = scene.nodes || [];
    root.classList.toggle("empty", !list.length);
    svg.setAttribute("viewBox", `0 0 ${scene.width || 1} ${scene.height || 1}`);
    svg.setAttribute("width", scene.width || 0);
    svg.setAttribute("height", scene.height || 0);
    list.forEach((n, i) => {
      const v = node(i);
      set(v.g, "class", "node " + n.state, v.m);
      set(v.g, "transform", `translate(${n.x},${n.y})`, v.m);
      set(v.rect, "rx", RADII[n.state] ?? 5, v.r);
      if (v.label !== n.label) v.text.textContent = v.label = n.label;
      let path = "";
      if (n.parent >= 0) {
        const p = list[n.parent], x1 = p.x + W / 2, x2 = n.x - W / 2, mid = (x1 + x2) / 2;
        path = `M${x1},${p.y}C${mid},${p.y} ${mid},${n.y} ${x2},${n.y}`;
      }
      set(v.edge, "d", path, v.e);
      set(v.edge, "class", "edge " + n.state, v.e);
      set(v.edge, "stroke-width", n.weight, v.e);
    });
    while (drawn.length > list.length) { const v = drawn.pop(); v.g.remove(); v.edge.remove(); }
    root.dataset.step = scene.step ?? "";
    root.dataset.nodes = list.length;
    const now = performance.now();
    if (now - spoken > 1000) { spoken = now; root.setAttribute("aria-label", scene.summary || "no step yet"); }
    showCard();
  }

  function showCard() {
    const list = model.get("scene").nodes || [], i = hovered >= 0 ? hovered : model.get("chosen"), n = list[i];
    drawn.forEach((v, j) => v.g.classList.toggle("open", j === i));
    drawn.forEach((v) => { v.m.class = null; });
    card.hidden = !n;
    if (!n) return;
    card.replaceChildren();
    for (const [name, value] of n.card) {
      const line = make("div", {}, card);
      make("span", { class: "name" }, line).textContent = name;
      make("span", { class: "value" }, line).textContent = value;   // text only: a token is never markup
    }
    // In a corner, away from the node: a card at the node would hide its children, and the pane would cut it off.
    const right = n.x - pane.scrollLeft < pane.clientWidth / 2;
    card.style.left = right ? "auto" : "8px";
    card.style.right = right ? "8px" : "auto";
  }

  function focus(i) {
    model.set("chosen", i);
    model.save_changes();
    showCard();
    const n = (model.get("scene").nodes || [])[i];
    if (n) { live.textContent = n.card.map((c) => c.join(" ")).join(", "); drawn[i].g.scrollIntoView?.({ block: "nearest", inline: "nearest" }); }
  }

  root.addEventListener("keydown", (event) => {
    const list = model.get("scene").nodes || [], i = model.get("chosen");
    if (!list.length) return;
    const by = (filter) => list.map((n, j) => [n, j]).filter(([n, j]) => filter(n, j)).sort((a, b) => a[0].y - b[0].y);
    let to = null;
    if (event.key === "Escape") to = -1;
    else if (i < 0 || !list[i]) { if (event.key.startsWith("Arrow")) to = 0; }
    else if (event.key === "ArrowRight") to = by((n) => n.parent === i)[0]?.[1];
    else if (event.key === "ArrowLeft") to = list[i].parent;
    else if (event.key === "ArrowDown") to = by((n, j) => j !== i && n.x === list[i].x && n.y > list[i].y)[0]?.[1];
    else if (event.key === "ArrowUp") to = by((n, j) => j !== i && n.x === list[i].x && n.y < list[i].y).at(-1)?.[1];
    else return;
    event.preventDefault();
    event.stopPropagation();                       // JupyterLab would move between cells
    if (to !== undefined && to !== null && (to >= 0 || event.key === "Escape")) focus(to);
  });

  function told() {   // how long the page worked on this picture, with all that was drawn in the same frame
    if (!began) return;
    cost = here ? 0.7 * cost + 0.3 * (performance.now() - began) : 0;
    began = 0;
    if (Math.abs(cost - model.get("cost")) > 0.25 * model.get("cost")) { model.set("cost", cost); model.save_changes(); }
  }

  const channel = new MessageChannel();   // its messages come after the frame
  channel.port1.onmessage = told;
  const later = () => {   // the newest wins, nothing queues
    if (frame) return;
    began ||= performance.now();
    frame = requestAnimationFrame(() => { draw(); channel.port2.postMessage(0); });
  };
  model.on("change:scene", later);
  model.on("change:chosen", showCard);
  draw();
  return () => { cancelAnimationFrame(frame); channel.port1.close(); model.off("change:scene", later); model.off("change:chosen", showCard); };
}
export default { render };
