// A page without a kernel: the widgets' own views on a model that lives in the page. No request leaves it.
class Model {
  constructor(state) { this.state = state; this.heard = new Map(); }
  get(name) { return this.state[name]; }
  set(name, value) {
    if (this.state[name] === value) return;
    this.state[name] = value;
    (this.heard.get(`change:${name}`) || []).forEach((f) => f());
  }
  on(event, f) { this.heard.set(event, [...(this.heard.get(event) || []), f]); }
  off(event, f) { this.heard.set(event, (this.heard.get(event) || []).filter((g) => g !== f)); }
  save_changes() {}
  send() {}
}

async function unpacked(id) {   // base64 of zlib's format, or plain JSON
  const node = document.getElementById(id), text = node.textContent;
  if (node.type === "application/json") return JSON.parse(text);
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}
