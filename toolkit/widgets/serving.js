// The serving view: pages, queues, log and prefix cache. No imports, so it needs no network. The scene lives with the model
// and grows by messages; a view keeps what it drew by place, and only what changed is touched.
const SVG = "http://www.w3.org/2000/svg";
const H = 36;

function make(name, attributes, parent, text) {
  const node = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;                    // text only: a token is never markup
  if (parent) parent.append(node);
  return node;
}

function set(node, key, value, memory) {
  if (memory[key] === value) return;
  memory[key] = value;
  if (key === "text") node.textContent = value;
  else if (key.startsWith("--")) node.style.setProperty(key, value);
  else node.setAttribute(key, value);
}

export default () => {
  let scene = {}, number = -1, asked = false;
  const views = new Set();

  function initialize({ model }) {
    const whole = () => { ({ number = -1, ...scene } = model.get("scene") || {}); asked = false; views.forEach((v) => v.later()); };
    whole();
    model.on("change:scene", whole);
    model.on("msg:custom", (message) => {
      if (message.kind !== "change" || message.from < number) return;
      if (message.from > number) {                                    // a message was lost
        if (!asked) { asked = true; model.send({ kind: "gap" }); }
        return;
      }
      number = message.from + 1;
      for (const name in message.parts) {
        const had = scene[name], part = message.parts[name];
        scene[name] = Array.isArray(had) && !Array.isArray(part) ? Object.assign([...had], part) : part;
      }
      views.forEach((v) => v.later());
    });
  }

  function render({ model, el }) {
    const root = make("div", { class: "sd-serving", role: "group", "aria-roledescription": "server" }, el);
    const title = (text) => {
      const line = make("div", { class: "title" }, root);
      make("span", { class: "name" }, line, text);
      return { said: make("span", { class: "said" }, line), aside: make("span", { class: "aside" }, line) };
    };
    const pages = title("Pages");
    const bar = make("div", { class: "bar", "aria-hidden": "true" }, root);
    const shares = ["held", "cached", "free"].map((name) => ({ name, el: make("span", { class: name }, bar), m: {} }));
    const map = make("div", { class: "map", tabindex: "0", role: "group", "aria-roledescription": "page map" }, root);
    const legend = make("div", { class: "legend", "aria-hidden": "true" }, root);
    for (const [state, letter, text] of [["held", "A", "held by a request"], ["shared", "AB", "held by several"],
      ["held known", "A", "held and in the prefix cache"], ["cached", "", "in the prefix cache alone"], ["free", "", "free"]]) {
      const key = make("span", { class: "key" }, legend);
      const cell = make("span", { class: "cell " + state, style: "--a: var(--c0); --b: var(--c1); --c: var(--c0); --on: var(--on0)" }, key);
      make("span", {}, cell, letter);
      make("span", {}, key, text);
    }
    const queue = make("div", { class: "queue" }, root);
    const lanes = make("div", { class: "lanes", tabindex: "0", role: "group", "aria-label": "requests", "aria-roledescription": "queues" }, queue);
    const log = make("div", { class: "log", role: "group", "aria-label": "last events" }, queue);
    make("div", { class: "lane-name" }, log, "last events");
    const lines = make("ol", {}, log);
    const prefix = title("Prefix cache");
    const pane = make("div", { class: "pane", tabindex: "0", role: "group", "aria-roledescription": "prefix tree" }, root);
    const svg = make("svg:svg", { "aria-hidden": "true" }, pane);
    const edges = make("svg:g", {}, svg), boxes = make("svg:g", {}, svg);
    const card = make("div", { class: "card", role: "tooltip", hidden: "" }, root);
    const live = make("div", { class: "live", "aria-live": "polite" }, root);
    const memory = new WeakMap();
    const of = (node) => memory.get(node) || memory.set(node, {}).get(node);
    const put = (node, key, value) => set(node, key, value, of(node));
    const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
    let frame = 0, spoken = -1e9, began = 0, cost = model.get("cost");

    // ---- drawing: each list fills the places it has, makes those it lacks and removes the rest -------------------------

    function fill(list, drawn, create, update) {
      list.forEach((item, i) => update((drawn[i] ||= create(i)), item, i));
      while (drawn.length > list.length) drawn.pop().gone();
    }

    const cells = [];
    const newCell = (i) => {
      const node = make("div", { "data-i": i }, map), label = make("span", {}, node);
      return { el: node, label, gone: () => node.remove() };
    };
    function drawCell(v, cell) {
      v.item = cell;
      const part = cell.full < 1 && cell.who.length ? " part" : "";
      put(v.el, "class", `cell ${cell.state}${cell.known ? " known" : ""}${part}${v.mark || ""}`);
      const [a, b, c] = cell.colours;
      put(v.el, "--a", a === undefined ? "transparent" : `var(--c${a})`);
      put(v.el, "--b", b === undefined ? "var(--paper)" : `var(--c${b})`);
      put(v.el, "--c", c === undefined ? `var(--c${a})` : `var(--c${c})`);
      put(v.el, "--d", c === undefined ? "var(--b)" : `var(--c${a})`);
      put(v.el, "--on", a === undefined ? "inherit" : `var(--on${a})`);
      put(v.el, "--empty", part ? `${Math.round(100 - 100 * cell.full)}%` : "0%");
      put(v.label, "text", cell.label);
    }

    function badge(parent) { return make("span", { class: "badge" }, parent); }
    function drawBadge(node, item) {
      put(node, "text", item.label);
      put(node, "--a", `var(--c${item.colour})`);
      put(node, "--on", `var(--on${item.colour})`);
    }

    const chips = [];   // in order, over all lanes
    const columns = [0, 1, 2].map((i) => {
      const lane = make("div", { class: "lane" }, lanes);
      const line = make("div", { class: "lane-name" }, lane), name = make("span", {}, line);
      return { name, unit: make("span", { class: "unit" }, line), list: make("div", { class: "chips" }, lane), more: make("div", { class: "more" }, lane), drawn: new Map() };
    });
    function drawLane(column, lane) {
      put(column.name, "text", `${lane.name} ${lane.count}`);
      put(column.unit, "text", lane.count ? "tokens" : "");
      put(column.more, "text", lane.more ? `+${lane.more} more` : lane.count ? "" : "nobody");
      const wanted = new Set(lane.chips.map((c) => c.label));
      for (const [label, v] of column.drawn) if (!wanted.has(label)) { v.el.remove(); column.drawn.delete(label); }
      lane.chips.forEach((chip, k) => {
        let v = column.drawn.get(chip.label);
        if (!v) {
          const node = make("div", {});
          v = { el: node, badge: badge(node), name: make("span", { class: "id" }, node), tokens: make("span", { class: "tokens" }, node), again: make("span", { class: "again" }, node) };
          column.drawn.set(chip.label, v);
        }
        if (column.list.children[k] !== v.el) column.list.insertBefore(v.el, column.list.children[k] || null);
        Object.assign(v, { item: chip, lane: columns.indexOf(column), line: k });
        drawBadge(v.badge, chip);
        put(v.name, "text", chip.name);
        put(v.tokens, "text", String(chip.settled));
        put(v.again, "text", chip.again ? `↺${chip.again}` : "");
        put(v.el, "class", `chip${chip.again ? " preempted" : ""}${v.mark || ""}`);
        put(v.el, "data-i", String(chips.length));
        chips.push(v);
      });
    }

    const events = [];
    const newLine = () => {
      const node = make("li", {}, lines);
      return { el: node, at: make("span", { class: "at" }, node), badge: badge(node), mark: make("span", { class: "mark" }, node), text: make("span", { class: "text" }, node), gone: () => node.remove() };
    };
    function drawLine(v, line) {
      put(v.el, "class", line.kind);
      put(v.at, "text", line.at);
      put(v.mark, "text", line.mark);
      put(v.text, "text", line.text);
      drawBadge(v.badge, line);
    }

    const nodes = [];
    const newNode = (i) => {
      const edge = make("svg:path", {}, edges), g = make("svg:g", { "data-i": i }, boxes);
      const v = { el: g, edge, rect: make("svg:rect", { y: -H / 2, height: H, rx: 5 }, g), bars: [0, 1, 2].map(() => make("svg:rect", { width: 4 }, g)),
        label: make("svg:text", { class: "label" }, g), small: make("svg:text", { class: "small", y: 11 }, g) };
      v.gone = () => { g.remove(); edge.remove(); };
      return v;
    };
    function drawNode(v, n) {
      v.item = n;
      put(v.el, "class", `node ${n.state}${v.mark || ""}`);
      put(v.el, "transform", `translate(${n.x},${n.y})`);
      put(v.rect, "x", -n.wide / 2);
      put(v.rect, "width", n.wide);
      for (const line of [v.label, v.small]) put(line, "x", 14 - n.wide / 2);
      put(v.label, "y", n.small ? -3 : 4);
      put(v.label, "text", n.label);
      put(v.small, "text", n.small);
      const tall = (H - 8) / Math.max(1, n.colours.length);
      v.bars.forEach((bar, k) => {
        const drawn = k < n.colours.length;
        put(bar, "x", 4 - n.wide / 2);
        put(bar, "height", drawn ? tall : 0);
        put(bar, "y", -H / 2 + 4 + k * tall);
        if (drawn) put(bar, "class", `stripe c${n.colours[k]}`);
      });
      const p = scene.nodes[n.parent];
      let path = "";
      if (p) {
        const x1 = p.x + p.wide / 2, x2 = n.x - n.wide / 2, mid = (x1 + x2) / 2;
        path = `M${x1},${p.y}C${mid},${p.y} ${mid},${n.y} ${x2},${n.y}`;
      }
      put(v.edge, "d", path);
      put(v.edge, "class", "edge " + n.state);
    }

    function draw() {
      frame = 0;
      const head = scene.head;
      root.classList.toggle("empty", !head);
      if (!head) return;
      put(pages.said, "text", head.summary);
      put(pages.aside, "text", `step ${head.step} · ${head.note}`);
      for (const s of shares) set(s.el, "--share", String(head[s.name]), s.m);
      put(map, "data-size", head.size);
      fill(scene.cells, cells, newCell, drawCell);
      chips.length = 0;
      scene.lanes.forEach((lane, i) => drawLane(columns[i], lane));
      fill(scene.log, events, newLine, drawLine);
      put(lines, "data-none", scene.log.length ? "" : "nothing yet");
      put(prefix.said, "text", scene.tree.summary);
      put(prefix.aside, "text", scene.tree.more);
      put(svg, "viewBox", `0 0 ${scene.tree.width} ${scene.tree.height}`);
      put(svg, "width", scene.nodes.length ? scene.tree.width : 0);
      put(svg, "height", scene.nodes.length ? scene.tree.height : 0);
      put(pane, "data-none", scene.nodes.length ? "" : "Nothing yet: a page comes in when a request has filled it.");
      fill(scene.nodes, nodes, newNode, drawNode);
      root.dataset.step = head.step;
      const now = performance.now();
      if (now - spoken > 1000) {
        spoken = now;
        put(root, "aria-label", `step ${head.step}: ${head.summary}`);
        put(map, "aria-label", `${head.pages} pages, arrow keys show one`);
        put(pane, "aria-label", `${scene.tree.summary}, arrow keys show one`);
      }
      showCard();
    }

    // ---- cards and what belongs together: under the pointer, or chosen with the keys ----------------------------------

    const regions = [   // `same`: is this the thing whose card was open before something else took its place
      { box: map, list: cells, at: 0, next: grid, same: (a, b) => a.pages[0] === b.pages[0] },
      { box: lanes, list: chips, at: 0, next: lane, same: (a, b) => a.label === b.label },
      { box: pane, list: nodes, at: 0, next: tree, same: (a, b) => String(a.pages) === String(b.pages) },
    ];
    let hovered = null, chosen = null, marked = false;   // { region, i, item }

    function lane(key, i, list) {
      if (key === "ArrowDown" || key === "ArrowUp") return i + (key === "ArrowDown" ? 1 : -1);
      if (key === "Home" || key === "End") return key === "Home" ? 0 : list.length - 1;
      const step = key === "ArrowRight" ? 1 : -1;
      for (let to = list[i].lane + step; to >= 0 && to < 3; to += step) {
        const there = list.filter((v) => v.lane === to);
        if (there.length) return list.indexOf(there[Math.min(list[i].line, there.length - 1)]);
      }
      return -1;
    }

    function grid(key, i, list) {   // up and down by where things stand: the page decides how many there are in a line
      const box = (j) => list[j].el.getBoundingClientRect(), at = box(i);
      if (key === "ArrowRight") return i + 1;
      if (key === "ArrowLeft") return i - 1;
      if (key === "Home") return 0;
      if (key === "End") return list.length - 1;
      const down = key === "ArrowDown", step = down ? 1 : -1;
      let best = -1, far = Infinity;
      for (let j = i + step; j >= 0 && j < list.length; j += step) {
        const b = box(j), dy = down ? b.top - at.bottom : at.top - b.bottom, d = Math.abs(b.left - at.left);
        if (dy < -1) continue;
        if (d + 4 * dy < far) { far = d + 4 * dy; best = j; } else if (best >= 0 && 4 * dy > far) break;
      }
      return best;
    }

    function tree(key, i) {
      const list = scene.nodes, by = (filter) => list.map((n, j) => [n, j]).filter(([n, j]) => filter(n, j)).sort((a, b) => a[0].y - b[0].y);
      if (key === "ArrowRight") return by((n) => n.parent === i)[0]?.[1] ?? -1;
      if (key === "ArrowLeft") return list[i].parent;
      if (key === "ArrowDown") return by((n) => n.x === list[i].x && n.y > list[i].y)[0]?.[1] ?? -1;
      if (key === "ArrowUp") return by((n) => n.x === list[i].x && n.y < list[i].y).at(-1)?.[1] ?? -1;
      return key === "Home" ? 0 : -1;
    }

    function mark(v, what) {
      if ((v.mark || "") === what) return;
      v.mark = what;
      const classes = what.trim().split(" ").filter(Boolean);
      v.el.classList.remove("open", "lit", "dim");
      v.el.classList.add(...classes);
      of(v.el).class = v.el.getAttribute("class");   // as drawCell and its like would write it
    }

    function found(open) {   // lists move while a card is open
      if (!open) return null;
      const { region, item } = open, i = region.list[open.i] && region.same(region.list[open.i].item, item) ? open.i : region.list.findIndex((v) => region.same(v.item, item));
      return i >= 0 ? { region, i, item: region.list[i].item } : null;
    }

    function showCard() {
      hovered = found(hovered);
      chosen = found(chosen);
      const open = hovered || chosen, from = open?.region, v = from?.list[open.i], item = v?.item;
      card.hidden = !item;
      if (!item && !marked) return;
      marked = Boolean(item);
      const who = new Set(item?.who), held = new Set(item?.pages && from !== regions[1] ? spread(from, item) : []);
      for (const region of regions) {
        for (const w of region.list) {
          let what = "";
          if (w === v) what = " open";
          else if (item && region !== from) {
            const chip = from === regions[1] || region === regions[1];
            const meets = chip ? w.item.who.some((r) => who.has(r)) : spread(region, w.item).some((p) => held.has(p));
            what = meets ? " lit" : from === regions[1] ? " dim" : "";
          }
          mark(w, what);
        }
      }
      if (!item) return;
      card.replaceChildren();
      for (const [name, value] of item.card) {
        const line = make("div", {}, card);
        make("span", { class: "name" }, line, name);
        make("span", { class: "value" }, line, value);
      }
      place(v.el, from === regions[2]);
    }

    function spread(region, item) {   // the pages an item stands for
      if (region !== regions[0]) return item.pages;
      return Array.from({ length: item.pages[1] - item.pages[0] + 1 }, (_, k) => item.pages[0] + k);
    }

    function place(node, above) {   // beside what it is about, inside the view
      const r = root.getBoundingClientRect(), b = node.getBoundingClientRect();
      const left = Math.max(0, Math.min(b.left - r.left, r.width - card.offsetWidth));
      const top = above ? b.top - r.top - card.offsetHeight - 6 : b.bottom - r.top + 6;
      card.style.left = `${left}px`;
      card.style.top = `${Math.max(0, top)}px`;
    }

    function go(region, i) {
      const v = region.list[i];
      if (!v) return;
      region.at = i;
      chosen = { region, i, item: v.item };
      v.el.scrollIntoView?.({ block: "nearest", inline: "nearest" });
      showCard();
      live.textContent = v.item.card.map((c) => c.join(" ")).join(", ");
    }

    for (const region of regions) {
      const { box } = region;
      const under = (event) => { const t = event.target.closest("[data-i]"); return t && box.contains(t) ? Number(t.dataset.i) : -1; };
      box.addEventListener("pointerover", (event) => {
        const i = under(event);
        if (i === (hovered?.region === region ? hovered.i : -1)) return;
        hovered = region.list[i] ? { region, i, item: region.list[i].item } : null;
        showCard();
      });
      box.addEventListener("pointerleave", () => { hovered = null; showCard(); });
      box.addEventListener("click", (event) => { const i = under(event); if (i >= 0) go(region, i); });
      box.addEventListener("focus", () => { if (box.matches(":focus-visible") && region.list.length) go(region, Math.min(region.at, region.list.length - 1)); });
      box.addEventListener("blur", () => { if (chosen?.region === region) { chosen = null; showCard(); } });
      box.addEventListener("keydown", (event) => {
        const i = chosen?.region === region && region.list[chosen.i] ? chosen.i : -1;
        if (event.key === "Escape") { if (i < 0) return; chosen = hovered = null; showCard(); }
        else if (!/^(Arrow|Home|End)/.test(event.key) || !region.list.length) return;
        else {
          hovered = null;   // the keys are in use: a pointer that lies still has no say
          const to = i < 0 ? Math.min(region.at, region.list.length - 1) : region.next(event.key, i, region.list);
          if (to >= 0 && to < region.list.length) go(region, to);
        }
        event.preventDefault();
        event.stopPropagation();                     // JupyterLab would move between cells
      });
    }

    // ---- when to draw --------------------------------------------------------------------------------------------------

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
    const view = { later };
    views.add(view);
    draw();
    return () => { views.delete(view); cancelAnimationFrame(frame); channel.port1.close(); };
  }

  return { initialize, render };
};
