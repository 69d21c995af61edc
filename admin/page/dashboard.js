"use strict";

// Shows /api/status and asks for it again every two seconds. Everything that
// comes from the server reaches the document as text, never as markup.

const every = 2000, timeout = 5000, keep = 150; // milliseconds, milliseconds, samples
const samples = []; // {at, full, resumed} in the order they came
let lastAnswer = null; // when the proxy last answered, by this computer's clock

const $ = id => document.getElementById(id);

function element(name, className, ...children) {
  const e = document.createElement(name);
  if (className) e.className = className;
  e.append(...children.filter(c => c !== null && c !== undefined && c !== ""));
  return e;
}

const number = new Intl.NumberFormat("en");
const count = n => number.format(n || 0);
const percent = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "–";
const sum = object => Object.values(object || {}).reduce((a, b) => a + b, 0);

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (n = n || 0; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i ? n.toFixed(1) : n) + " " + units[i];
}

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return s + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " days";
}

const time = iso => iso ? Date.parse(iso) / 1000 : 0; // seconds; 0: not set

function fromNow(now, iso) {
  if (!time(iso)) return "–";
  const d = time(iso) - time(now);
  return d >= 0 ? "in " + duration(d) : duration(-d) + " ago";
}

function table(id, head, rows) {
  const t = $(id);
  const headRow = element("tr");
  for (const h of head) headRow.append(element("th", h.startsWith("#") ? "number" : "", h.replace("#", "")));
  const body = element("tbody");
  for (const cells of rows) {
    const row = element("tr");
    cells.forEach((c, i) => {
      const cell = element(i === 0 ? "th" : "td", (head[i] || "").startsWith("#") ? "number" : "words");
      if (i === 0) cell.scope = "row";
      cell.append(...(Array.isArray(c) ? c : [c]).filter(x => x !== null && x !== undefined));
      row.append(cell);
    });
    body.append(row);
  }
  if (!rows.length) body.append(element("tr", "", element("td", "dim", "none")));
  const parts = [body];
  if (head.length && head.some(h => h)) parts.unshift(element("thead", "", headRow));
  t.replaceChildren(...parts);
}

const lines = list => list.flatMap((x, i) => i ? [element("br"), x] : [x]);

function tiles(s) {
  const all = sum(s.front.handshakes), resumed = sum(s.front.resumed);
  const minute = since(60), failures = sum(s.front.failures);
  const list = [
    [count(all - resumed), "full"],
    [count(resumed), "resumed"],
    [percent(resumed, all), "resumption ratio"],
    [minute ? percent(minute.resumed, minute.full + minute.resumed) : "–", "ratio, last minute"],
    [minute ? minute.rate.toFixed(1) : "–", "per second, last minute"],
    [count(failures), "failed"],
    [count(s.front.open), "connections"],
  ];
  $("tiles").replaceChildren(...list.map(([value, label]) =>
    element("div", "tile", element("b", "", value), element("span", "", label))));
}

// since says what happened in the last so many seconds, or null when too little is known.
function since(seconds) {
  const last = samples[samples.length - 1];
  const first = samples.find(x => x.at >= last.at - seconds);
  if (!first || last.at - first.at < 1) return null;
  const full = last.full - first.full, resumed = last.resumed - first.resumed;
  return { full, resumed, rate: (full + resumed) / (last.at - first.at) };
}

function chart() {
  const svg = $("chart"), width = 600, height = 120, points = [];
  for (let i = 1; i < samples.length; i++) {
    const dt = samples[i].at - samples[i - 1].at;
    if (dt <= 0) continue;
    points.push({
      full: Math.max(0, samples[i].full - samples[i - 1].full) / dt,
      resumed: Math.max(0, samples[i].resumed - samples[i - 1].resumed) / dt,
    });
  }
  const top = Math.max(1, ...points.map(p => p.full + p.resumed));
  const step = width / (keep - 1), start = width - step * (points.length - 1);
  const y = v => (height - (height - 4) * v / top).toFixed(1);
  const area = (className, low, high) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const up = points.map((p, i) => (start + i * step).toFixed(1) + "," + y(high(p)));
    const down = points.map((p, i) => (start + i * step).toFixed(1) + "," + y(low(p))).reverse();
    path.setAttribute("class", className);
    path.setAttribute("d", points.length > 1 ? "M" + up.concat(down).join("L") + "Z" : "");
    return path;
  };
  svg.replaceChildren(
    area("area-resumed", () => 0, p => p.resumed),
    area("area-full", p => p.resumed, p => p.resumed + p.full));
  $("chart-scale").textContent = "last " + Math.round(keep * every / 60000) + " minutes, top of the scale " + top.toFixed(1);
}

const lookupMeanings = {
  hit: "resumed from the local cache",
  hit_shared: "resumed from the shared store",
  absent: "unknown: expired, evicted, used up, or from before a restart",
  sni: "made under another server name",
  scope: "made under another policy, or the policy changed",
  key: "its certificate key is no longer served",
  lineage: "the original authentication is too old",
  revoked: "revoked",
  declined: "found, but version, cipher suite or client certificate forbid it",
  malformed: "not a handle of ours",
  unfinished: "found, and the handshake failed",
  store_error: "the shared store failed or was too slow",
};

function lookups(s) {
  const all = s.sessions.lookups || {}, total = sum(all);
  const names = Object.keys(lookupMeanings).concat(Object.keys(all).filter(k => !(k in lookupMeanings)));
  table("lookups", ["result", "#lookups", "#share", "meaning"],
    names.filter(k => all[k] || k === "hit" || k === "absent").map(k =>
      [k, count(all[k]), percent(all[k] || 0, total), element("span", "dim", lookupMeanings[k] || "")]));
}

function fill(value, limit, show) {
  if (!limit) return [show(value)];
  const m = element("meter");
  m.max = limit;
  m.value = value;
  return [show(value) + " of " + show(limit), element("br"), m];
}

function caches(s) {
  table("caches", ["cache", "entries", "memory", "#hits", "evictions"], (s.caches || []).map(c => [
    c.name,
    fill(c.entries, c.capacity, count),
    fill(c.bytes, c.max_bytes, bytes),
    percent(c.hits, c.hits + c.misses),
    lines(Object.entries(c.evictions || {}).filter(([, n]) => n).map(([reason, n]) => reason + " " + count(n))),
  ]));
}

function expiry(now, iso, warnDays) {
  if (!time(iso)) return element("span", "warn", "none yet");
  const left = time(iso) - time(now);
  const className = left <= 0 ? "bad" : left < warnDays * 86400 ? "warn" : "";
  return element("span", className, left <= 0 ? "EXPIRED " + fromNow(now, iso) : fromNow(now, iso));
}

function staple(s, c) {
  if (c.source === "client") return [element("span", "dim", "shown to servers")];
  const st = (s.staples || []).find(x => c.fingerprint && x.certificate === c.fingerprint);
  if (!st || st.state === "no_responder") {
    return [element("span", c.must_staple ? "bad" : "dim", c.must_staple ? "must-staple, but no responder" : "no responder")];
  }
  const className = { good: "good", revoked: "bad" }[st.state] || "warn";
  const out = [element("span", st.must_staple && st.state !== "good" ? "bad" : className, st.state.replace("_", " "))];
  if (st.must_staple) out[0].append(", must-staple");
  if (time(st.expires) && st.state === "good") out.push(element("br"), "served until " + fromNow(s.now, st.expires).replace("in ", "") + " from now");
  if (time(st.next_fetch)) out.push(element("br"), element("span", "dim", "next fetch " + fromNow(s.now, st.next_fetch)));
  if (st.last_error) out.push(element("br"), element("span", "warn", st.last_error));
  return out;
}

function certificates(s) {
  table("certificates", ["certificate", "names", "expires", "staple", "state"], (s.certificates || []).map(c => {
    const state = [];
    if (c.last_error) state.push(element("span", "bad", c.last_error));
    for (const w of c.warnings || []) state.push(element("span", "warn", w));
    if (c.next_action) state.push(element("span", "dim", c.next_action + (time(c.next_action_at) ? " " + fromNow(s.now, c.next_action_at) : "")));
    if (!state.length) state.push(element("span", "good", "ok"));
    return [
      lines([c.name, element("span", "dim", [c.source, c.key_type, c.default ? "default" : ""].filter(x => x).join(", "))]),
      lines((c.names || []).slice(0, 5).concat((c.names || []).length > 5 ? ["and " + (c.names.length - 5) + " more"] : [])),
      expiry(s.now, c.not_after, 7),
      staple(s, c),
      lines(state),
    ];
  }));
}

function upstreams(s) {
  const rows = [];
  for (const pool of s.upstreams || []) {
    for (const b of pool.backends || []) {
      rows.push([
        pool.name,
        b.backend,
        [element("span", b.state === "up" ? "good" : "bad", b.state), time(b.since) ? element("span", "dim", " since " + fromNow(s.now, b.since)) : null],
        count(b.in_flight), count(b.requests), count(b.failures),
        b.last_error ? element("span", b.state === "up" ? "dim" : "bad", b.last_error) : "",
      ]);
    }
  }
  table("upstreams", ["upstream", "backend", "state", "#in flight", "#requests", "#failures", "last error"], rows);
}

function config(s) {
  const c = s.config;
  const last = time(c.last_reload)
    ? [element("span", c.last_reload_ok ? "good" : "bad", c.last_reload_ok ? "ok" : "refused, the old one serves on"), " " + fromNow(s.now, c.last_reload)]
    : ["none since the start"];
  const rows = [
    ["file", c.path],
    ["generation", [count(c.generation) + ", in force since " + fromNow(s.now, c.loaded)]],
    ["last reload", last],
  ];
  if (c.last_error) rows.push(["reason", element("span", "bad", c.last_error)]);
  for (const l of s.listeners || []) {
    const proxy = l.proxy_protocol && l.proxy_protocol !== "off" ? ", PROXY header " + l.proxy_protocol : "";
    const sites = Object.keys(l.sites || {}).filter(x => x).sort(); // the default policy may have no site
    rows.push(["https", lines([(l.bound || []).join(", ") + proxy, element("span", "dim", sites.join(", "))])]);
  }
  if ((s.http || []).length) rows.push(["http", s.http.join(", ")]);
  if ((s.admin || []).length) rows.push(["admin", s.admin.join(", ")]);
  table("config", [], rows);
}

function process(s) {
  const f = s.front, r = s.runtime;
  const rows = [
    ["connections", count(f.open) + " open, " + count(f.handshaking) + " of them in handshake, " + count(s.upgraded) + " upgraded"],
    ["accepted", count(f.accepted) + ", waited at a limit " + count(f.full) + " times, " + count(f.held_back) + " now"],
    ["failed handshakes", lines(Object.entries(f.failures || {}).filter(([, n]) => n)
      .sort((a, b) => b[1] - a[1]).map(([reason, n]) => reason + " " + count(n)))],
    ["goroutines", count(r.goroutines)],
    ["heap", bytes(r.heap_bytes)],
    ["runtime", r.go_version + ", " + r.cpus + " CPUs"],
  ];
  if (s.store) rows.push(["shared store", element("span", s.store.up ? "good" : "bad", s.store.state + (s.store.last_error ? ": " + s.store.last_error : ""))]);
  table("process", [], rows);
}

function problems(s) {
  const list = [...(s.not_ready || []).map(r => "not ready: " + r)];
  if (s.config.last_error) list.push("last reload refused: " + s.config.last_error);
  for (const c of s.certificates || []) {
    if (time(c.not_after) && time(c.not_after) <= time(s.now)) list.push("certificate " + c.name + " has expired");
    if (c.last_error) list.push("certificate " + c.name + ": " + c.last_error);
  }
  for (const st of s.staples || []) {
    if (st.state === "revoked") list.push("certificate of " + (st.names || []).join(", ") + " is revoked");
    else if (st.must_staple && st.state !== "good") list.push("must-staple certificate of " + (st.names || []).join(", ") + " has no valid staple");
  }
  for (const a of s.client_auth || []) {
    if (!a.available) list.push("site " + a.site + " refuses every client: " + (a.error || "client authentication is not available"));
  }
  for (const pool of s.upstreams || []) {
    const backends = pool.backends || [], up = backends.filter(b => b.state === "up").length;
    if (up < backends.length) list.push("upstream " + pool.name + ": " + (backends.length - up) + " of " + backends.length + " backends down");
  }
  if (s.store && !s.store.up) list.push("shared store: " + s.store.state);
  $("problem-list").replaceChildren(...list.map(x => element("li", "", x)));
  $("problems").hidden = list.length === 0;
  return list.length;
}

function show(s) {
  const previous = samples[samples.length - 1];
  const resumed = sum(s.front.resumed);
  const sample = { at: time(s.now), full: sum(s.front.handshakes) - resumed, resumed };
  // A counter that fell means another process: what was before says nothing of it.
  if (previous && (sample.full < previous.full || sample.resumed < previous.resumed)) samples.length = 0;
  samples.push(sample);
  if (samples.length > keep) samples.shift();

  $("version").textContent = s.version;
  $("summary").replaceChildren(
    element("span", s.ready ? "good" : "bad", s.draining ? "draining" : s.ready ? "ready" : "not ready"),
    " · up " + duration(s.uptime_seconds) + " · configuration " + s.config.generation);
  const wrong = problems(s);
  document.title = (wrong ? "(" + wrong + ") " : "") + "tlsproxy";
  tiles(s); chart(); lookups(s); caches(s); certificates(s); upstreams(s); config(s); process(s);
  $("main").hidden = false;
}

function offline(reason) {
  const o = $("offline");
  o.textContent = "tlsproxy does not answer (" + reason + "). " +
    (lastAnswer ? "What is below is from " + lastAnswer.toLocaleTimeString() + "." : "Nothing is known yet.");
  o.hidden = false;
  document.body.classList.add("stale");
  document.title = "OFFLINE – tlsproxy";
}

async function refresh() {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), timeout);
  try {
    const answer = await fetch("api/status", { signal: abort.signal, cache: "no-store" });
    if (!answer.ok) throw new Error("status " + answer.status);
    show(await answer.json());
    lastAnswer = new Date();
    $("offline").hidden = true;
    document.body.classList.remove("stale");
  } catch (e) {
    offline(e.name === "AbortError" ? "no answer within " + timeout / 1000 + " s" : e.message);
  } finally {
    clearTimeout(timer);
  }
}

async function run() {
  for (;;) {
    if (!document.hidden) await refresh();
    await new Promise(done => setTimeout(done, every));
  }
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
run();
