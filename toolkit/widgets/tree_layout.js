// Which nodes are shown, and where. Joined in front of tree.js: an ES module without imports needs no network.
const LEVEL = 112, LINE = 30, W = 84, H = 22, MARGIN = 10;

// Untested nodes less likely than `below` along their path, with all that follows them; not those under a node in `opened`.
function folded(nodes, below, opened) {
  const hidden = new Set(), free = new Set();
  nodes.forEach((n, i) => {
    if (free.has(n.parent) || opened.has(n.parent)) { free.add(i); return; }
    if (hidden.has(n.parent) || (n.state === "unreached" && n.path < below)) hidden.add(i);
  });
  return hidden;
}

// Depth to the right, one line a leaf, a parent half-way between its first and last child. A node whose children are folded
// away gets one more leaf, "+n", with index nodes.length + its own.
function arrange(nodes, hidden) {
  const shown = [], children = new Map(), away = new Map();
  nodes.forEach((n, i) => {
    if (hidden.has(i)) {
      let up = n.parent;
      while (hidden.has(up)) up = nodes[up].parent;
      away.set(up, (away.get(up) || 0) + 1);
      return;
    }
    shown.push({ i, n, depth: 0, x: 0, y: 0 });
  });
  const at = new Map(shown.map((v) => [v.i, v]));
  for (const v of [...shown]) {
    if (v.n.parent >= 0) (children.get(v.n.parent) || children.set(v.n.parent, []).get(v.n.parent)).push(v);
  }
  for (const [up, count] of away) {
    const v = { i: nodes.length + up, n: { parent: up, state: "folded", label: `+${count}`, p: 0, q: 0 }, depth: 0, x: 0, y: 0 };
    (children.get(up) || children.set(up, []).get(up)).push(v);
    at.set(v.i, v);
    shown.push(v);
  }
  let lines = 0;
  const stack = [[at.get(0), false]];
  while (stack.length) {
    const [v, done] = stack.pop(), below = children.get(v.i) || [];
    v.x = MARGIN + W / 2 + v.depth * LEVEL;
    if (done) v.y = (below[0].y + below.at(-1).y) / 2;
    else if (below.length) {
      stack.push([v, true]);
      for (const c of [...below].reverse()) { c.depth = v.depth + 1; stack.push([c, false]); }
    } else v.y = MARGIN + H / 2 + LINE * lines++;
  }
  const order = [];
  (function visit(v) { order.push(v); (children.get(v.i) || []).forEach(visit); })(at.get(0));
  return { order, at, children, width: MARGIN + W / 2 + Math.max(...order.map((v) => v.x)),
    height: MARGIN + H / 2 + Math.max(...order.map((v) => v.y)) };
}

