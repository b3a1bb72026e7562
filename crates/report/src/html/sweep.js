// The explorer of a sweep or comparison: a chart over any swept key, best and worst, a heat map of two keys, and a table to
// sort, filter and save. It needs charts.js before it. Without it the page still has its static table.
//
// The page must have:
// - <script type="application/json" id="rows-data"> with
//   {keys: [{name: "fabric.queue", short: "queue", values: ["100 kB", ...], numbers: [1e5, ...] | null, unit: "B"}],
//    metrics: [{name, label: "slowest flow", unit: "us" | "Gb/s" | "GB/s" | "%" | "", better: "lower" | "higher"}],
//    rows: [{label, set: {"fabric.queue": "100 kB"}, values: {metric name: number | null}, end: "finished", digest, missed: 0}],
//    ranked: bool}
//   numbers are the key's values in its unit, if all of them are numbers. A metric is null if the run has no value, such as
//   the slowest flow of a run that did not finish. ranked false: rows are compared, but not ranked.
// - <section id="explorer"></section>, which it fills.
// - <div class="card scroll" id="rows"><table>: its <tbody> has one row per member of rows, in that order. The cells to sort
//   by carry data-v="number"; those without a number are last. The first cell names the run.
(() => {
  const source = document.getElementById("rows-data");
  if (!source) return;
  const { html, svg } = charts, data = JSON.parse(source.textContent);
  const { keys, metrics, rows } = data, ranked = data.ranked !== false;
  const isSeed = key => key.name === "run.seed";
  for (const key of keys.filter(isSeed)) key.numbers = null;
  // Runs with different workloads are not compared: each workload is ranked on its own.
  const isLoad = key => key.name.startsWith("workload");
  const MEAN = -1;

  // Numbers with units, as the tables of the page show them.
  const figure = (value, unit) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const text = (of, digits, unit) => of.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + (unit && "\u00a0" + unit);
    if (unit === "us") {
      if (size < 0.1 && size > 0) return text(value * 1e3, 1, "ns");
      if (size < 9999.95) return text(value, 1, "us");
      return size < 999995 ? text(value / 1e3, 2, "ms") : text(value / 1e6, 2, "s");
    }
    if (unit === "Gb/s") {
      if (size >= 999.5) return text(value / 1e3, 2, "Tb/s");
      return size >= 100 ? text(value, 0, unit) : size >= 1 || !size ? text(value, 1, unit) : text(value * 1e3, 1, "Mb/s");
    }
    if (unit) return text(value, 2, unit);
    return Number.isInteger(value) ? text(value, 0, "") : charts.short(value);
  };
  // The best unit for an axis with numbers up to `most`, and the unit's size.
  const axisUnit = (most, unit) => {
    if (unit === "us") return most >= 2e6 ? ["s", 1e6] : most >= 5e3 ? ["ms", 1e3] : ["us", 1];
    if (unit === "Gb/s" && most >= 2e3) return ["Tb/s", 1e3];
    return [unit, 1];
  };
  const named = metric => metric.label[0].toUpperCase() + metric.label.slice(1);
  const unitOf = unit => unit ? ", " + unit : "";

  // Mean, minimum and maximum of one metric over some rows; no mean if one of them has no value.
  const collapse = (some, metric) => {
    const values = some.map(row => row.values[metric.name]), known = values.filter(v => v !== null && v !== undefined);
    const mean = known.length && known.length === values.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
    return { mean, low: Math.min(...known), high: Math.max(...known), n: values.length, missed: some.filter(r => r.missed || r.end !== "finished").length, some };
  };
  const order = metric => (a, b) => {
    if (a.mean === null || b.mean === null) return (a.mean === null) - (b.mean === null);
    return (metric.better === "higher" ? b.mean - a.mean : a.mean - b.mean);
  };
  // The runs by their settings without the seed.
  const settings = metric => {
    const groups = new Map();
    for (const row of rows.filter(row => loads().every(([key, value]) => row.set[key.name] === value))) {
      const name = keys.filter(key => !isSeed(key)).map(key => row.set[key.name]).join("\n") || (keys.length ? "" : row.label);
      groups.set(name, [...(groups.get(name) || []), row]);
    }
    const all = [...groups.values()].map(some => collapse(some, metric));
    return ranked ? all.sort(order(metric)) : all;
  };
  // The workload that is ranked: the chosen one, otherwise the last.
  const loads = () => keys.map((key, i) => [key, i]).filter(([key]) => ranked && isLoad(key) && key.values.length > 1).map(([key, i]) => {
    const value = remaining().includes(i) && state.rest[i] !== MEAN ? state.rest[i] : key.values.length - 1;
    return [key, key.values[value]];
  });
  const what = row => {
    const fixed = loads().map(([key]) => key), set = keys.filter(key => !isSeed(key) && !fixed.includes(key) && key.values.length > 1);
    if (!set.length || set.some(key => row.set[key.name] === undefined)) return row.label;
    const solid = text => text.replace(/ /g, "\u00a0");
    return set.length === 1 ? row.set[set[0].name] : set.map(key => solid(`${key.short} ${row.set[key.name]}`)).join(" · ");
  };

  const free = keys.filter(key => !isSeed(key) && key.values.length > 1);
  const state = { metric: 0, log: undefined, rest: {} };
  const x0 = free.filter(key => key.numbers).sort((a, b) => b.values.length - a.values.length)[0] || free[0] || keys[0];
  state.x = x0 && keys.indexOf(x0);
  const lines0 = free.find(key => key !== x0);
  state.lines = lines0 ? keys.indexOf(lines0) : MEAN;
  const remaining = () => keys.map((_, i) => i).filter(i => i !== state.x && i !== state.lines && keys[i].values.length > 1);
  const chosen = (but = []) => rows.filter(row => remaining().every(i => {
    const value = state.rest[i];
    return but.includes(i) || value === MEAN || row.set[keys[i].name] === keys[i].values[value];
  }));

  // At first, keys that are not drawn have the values of the best run.
  keys.forEach((key, i) => { state.rest[i] = isLoad(key) ? key.values.length - 1 : MEAN; });
  const best = settings(metrics[0])[0];
  keys.forEach((key, i) => { if (!isSeed(key) && best) state.rest[i] = key.values.indexOf(best.some[0].set[key.name]); });

  const isLog = key => {
    if (!key.numbers || Math.min(...key.numbers) <= 0) return false;
    const sorted = [...key.numbers].sort((a, b) => a - b), gaps = sorted.slice(1).map((v, i) => v - sorted[i]);
    return state.log ?? (sorted[sorted.length - 1] / sorted[0] >= 6 && Math.max(...gaps) > 3 * Math.min(...gaps));
  };

  const select = (label, options, value, change) => {
    const box = html("select", { onchange: event => { change(+event.target.value); render(); } },
      ...options.map(([key, text]) => html("option", { value: key, selected: key === value }, text)));
    return html("label", {}, html("span", {}, label), box);
  };
  const controls = () => {
    const parts = [select("Value", metrics.map((metric, i) => [i, named(metric) + unitOf(metric.unit)]), state.metric, i => { state.metric = i; })];
    const swept = keys.map((key, i) => [i, key.short]).filter(([i]) => keys[i].values.length > 1);
    if (swept.length > 1) {
      parts.push(select("Across", swept, state.x, i => {
        if (i === state.lines) state.lines = state.x;
        state.x = i;
        state.log = undefined;
      }));
      parts.push(select("A line for each", [...swept.filter(([i]) => i !== state.x), [MEAN, "nothing"]], state.lines, i => { state.lines = i; }));
    }
    for (const i of remaining()) {
      const options = [...keys[i].values.map((text, j) => [j, text]), [MEAN, isSeed(keys[i]) ? "mean and range" : "mean of all"]];
      parts.push(select(keys[i].short, options, state.rest[i], j => { state.rest[i] = j; }));
    }
    const key = keys[state.x];
    if (key && key.numbers && Math.min(...key.numbers) > 0 && key.values.length > 2) {
      const box = html("input", { type: "checkbox", onchange: event => { state.log = event.target.checked; render(); } });
      box.checked = isLog(key);
      parts.push(html("label", { class: "check" }, box, "logarithmic axis"));
    }
    return parts;
  };

  const card = (title, sub, ...inside) => html("figure", { class: "card" },
    html("figcaption", {}, html("h3", {}, title), html("p", { class: "sub" }, sub)), ...inside);
  // The keys that are fixed or averaged, for captions.
  const aside = () => remaining().map(i => {
    const key = keys[i], value = state.rest[i];
    if (value !== MEAN) return `${key.short} ${key.values[value]}`;
    return isSeed(key) ? `mean of ${key.values.length} seeds` : `mean of ${key.values.length} values of ${key.short}`;
  }).map(text => "; " + text).join("");

  const chart = width => {
    const key = keys[state.x], by = keys[state.lines], metric = metrics[state.metric];
    if (!key || key.values.length < 2 || (!key.numbers && !by && free.length < 2 && !remaining().length)) return undefined;
    const log = isLog(key), some = chosen();
    const place = key.values.map((_, i) => key.numbers ? key.numbers[i] : i);
    const list = (by ? by.values : [null]).map((value, i) => {
      const mine = value === null ? some : some.filter(row => row.set[by.name] === value);
      const p = key.values.map((text, j) => [place[j], collapse(mine.filter(row => row.set[key.name] === text), metric)])
        .filter(([, at]) => at.mean !== null).map(([x, at]) => [x, at.mean, at.low, at.high]).sort((a, b) => a[0] - b[0]);
      return { n: value === null ? "" : value, c: i % 8, dash: (i >> 3) % 4, p };
    });
    const values = list.flatMap(s => s.p.flatMap(p => [p[2], p[3]]));
    if (!values.length) return card(named(metric), `No run that is shown has this value${aside()}.`);
    const [unit, size] = axisUnit(Math.max(...values), metric.unit);
    // Categories are not joined by lines; points of one category are drawn side by side.
    const room = (key.numbers ? 0.12 : 0.6) * width / place.length, apart = Math.min(key.numbers ? (list.length > 6 ? 2 : 6) : 14, room / list.length);
    const band = list.length <= 3 && place.length > 2 && !!key.numbers;
    list.forEach((s, i) => {
      s.shift = band ? 0 : (i - (list.length - 1) / 2) * apart;
      s.p = s.p.map(p => [p[0], p[1] / size, p[2] / size, p[3] / size]);
    });
    const low = Math.min(...values) / size, high = Math.max(...values) / size, ylog = low > 0 && high / low > 20;
    const from = ylog ? low / 1.3 : low > 0.5 * high ? Math.max(0, low - 0.25 * (high - low || high)) : 0;
    const a = Math.min(...place), b = Math.max(...place), pad = key.numbers ? 0.04 : 0;
    const edge = log ? [a / (b / a) ** pad, b * (b / a) ** pad] : [a - pad * (b - a), b + pad * (b - a)];
    const name = x => key.values[place.reduce((near, at, i) => Math.abs(at - x) < Math.abs(place[near] - x) ? i : near, 0)];
    const spec = {
      x: key.numbers ? edge : [-0.5, place.length - 0.5], log, ylog, cats: !key.numbers,
      y: [from, ylog ? high * 1.3 : high + 0.06 * (high - from || high)],
      xl: key.name, yl: `${metric.label}${unitOf(unit)}`, d: "slopes", s: list, snap: true, dots: true,
      ticks: key.values.map((text, i) => [place[i], text]).sort((p, q) => p[0] - q[0]),
      band,
      show: v => figure(v * size, metric.unit), showX: x => `${key.short} ${name(x)}`,
    };
    const wide = width > 620, longest = Math.max(...list.map(s => s.n.length)) * 6.6 + 16;
    spec.ends = wide && list.length > 1 && longest < width * 0.3;
    const height = wide ? 360 : 280, right = width - (spec.ends ? longest : 14);
    const plot = svg("g", { "data-for": "sweep", "data-box": [58, 12, right, height - 42].join() });
    const drawing = svg("svg", { class: "fit", viewBox: `0 0 ${width} ${height}`, "aria-label": `${named(metric)} over ${key.short}` }, plot);
    const legend = list.length < 2 ? undefined : html("ul", { class: "legend" },
      ...list.map(s => html("li", {}, html("i", { class: `k${s.c} d${s.dash}` }), s.n)));
    const range = some.length > list.reduce((n, s) => n + s.p.length, 0) ? ", with the least and the most" : "";
    const marks = ylog ? ". The axis of values is logarithmic" : from > 0 ? `. The axis begins at ${figure(from * size, metric.unit)}` : "";
    const lines = by ? `, a ${key.numbers ? "line" : "colour"} for each ${by.short}` : "";
    const out = card(`${named(metric)} over ${key.short}`, `${named(metric)}${unitOf(unit)}${lines}${aside()}${range}${marks}`, drawing, legend);
    charts.mount(out, "sweep", spec);
    return out;
  };

  const BEST = 6, WORST = 3;
  const ranking = () => {
    const metric = metrics[state.metric], all = settings(metric), few = all.length <= BEST + WORST + 1;
    const most = Math.max(...all.map(group => group.mean ?? 0), 1e-12);
    const item = (group, place) => {
      const spread = figure(group.high, metric.unit) !== figure(group.low, metric.unit) ? ` (${figure(group.low, metric.unit)} to ${figure(group.high, metric.unit)})` : "";
      const note = group.missed ? html("span", { class: "missed" }, group.some.some(row => row.end !== "finished") ? " did not finish" : ` missed ${group.some.reduce((n, row) => n + row.missed, 0)} expected`) : undefined;
      return html("li", { class: ranked && !place && group.mean !== null && all.length > 1 ? "top" : "" },
        html("span", { class: "name" }, ranked && all.length > 1 ? html("span", { class: "place" }, `${place + 1}`) : undefined, html("span", {}, all.length > 1 ? what(group.some[0]) : group.n > 1 ? "all runs" : group.some[0].label)),
        html("span", { class: "bar" }, html("i", { style: `width:${Math.max(0.5, 100 * (group.mean ?? 0) / most)}%` })),
        html("span", { class: "number" }, html("b", {}, figure(group.mean, metric.unit)), html("small", {}, spread), note));
    };
    const shown = few ? all.map(item) : [...all.slice(0, BEST).map(item),
      html("li", { class: "gap" }, `${all.length - BEST - WORST} more`),
      ...all.slice(-WORST).map((group, i) => item(group, all.length - WORST + i))];
    const seeds = keys.find(isSeed), mean = seeds && seeds.values.length > 1 ? `; mean of ${seeds.values.length} seeds, the least and the most in brackets` : "";
    const title = all.length === 1 ? "All seeds together" : ranked ? (few ? "From best to worst" : "Best and worst") : "Side by side";
    const load = loads().map(([key, value]) => ` at ${key.short} ${value}`).join("");
    const sub = `${named(metric)} of ${all.length} ${all.length > 1 ? "settings" : "setting"}${load}${ranked ? `, ${metric.better} is better` : ""}${mean}`;
    return card(title, sub, html("ol", { class: "rank" }, ...shown));
  };

  const heat = () => {
    const key = keys[state.x], by = keys[state.lines], metric = metrics[state.metric];
    if (!key || !by || key === by) return undefined;
    const some = chosen(), cells = by.values.map(v => key.values.map(u =>
      collapse(some.filter(row => row.set[by.name] === v && row.set[key.name] === u), metric)));
    const known = cells.flat().map(cell => cell.mean).filter(v => v !== null);
    if (!known.length) return undefined;
    const [low, high] = [Math.min(...known), Math.max(...known)], [unit, size] = axisUnit(high, metric.unit);
    const scale = low > 0 && high / low > 20 ? Math.log : v => v;
    const shade = v => high > low ? Math.round(62 * (scale(v) - scale(low)) / (scale(high) - scale(low))) : 0;
    // Each workload has its own best run.
    const rivals = (i, j) => isLoad(key) ? cells.map(row => row[j]) : isLoad(by) ? cells[i] : cells.flat();
    const top = (i, j) => [...rivals(i, j)].sort(order(metric))[0].mean === cells[i][j].mean;
    const digits = high / size >= 1000 ? 0 : high / size >= 10 ? 1 : 2;
    const text = v => (v / size).toLocaleString("en-US", { minimumFractionDigits: unit ? digits : 0, maximumFractionDigits: digits });
    const cell = i => (at, j) => at.mean === null ? html("td", {}, "–")
      : html("td", { style: `--heat:${shade(at.mean)}%`, class: ranked && high > low && top(i, j) ? "top" : "" }, text(at.mean));
    const table = html("table", { class: "heat" },
      html("thead", {}, html("tr", {}, html("th", {}, `${by.short} \\ ${key.short}`), ...key.values.map(v => html("th", { scope: "col" }, v)))),
      html("tbody", {}, ...by.values.map((v, i) => html("tr", {}, html("th", { scope: "row" }, v), ...cells[i].map(cell(i))))));
    const each = isLoad(key) ? ` for each ${key.short}` : isLoad(by) ? ` for each ${by.short}` : "";
    const frame = ranked && high > low ? `; the best${each} has a frame` : "";
    const out = card(`${by.short} and ${key.short}`, `${named(metric)}${unitOf(unit)}; the stronger the colour, the more${frame}${aside()}`, html("div", { class: "scroll" }, table));
    if (key.values.length > 7) out.classList.add("full");
    return out;
  };

  const explorer = document.getElementById("explorer");
  const bar = html("div", { class: "controls" }), body = html("div", {});
  const render = () => {
    const focus = [...bar.querySelectorAll("select,input")].indexOf(document.activeElement);
    bar.replaceChildren(...controls());
    if (focus >= 0) bar.querySelectorAll("select,input")[focus]?.focus();
    drawn = Math.min(1140, explorer.clientWidth - 36);
    body.replaceChildren(...[chart(Math.max(280, drawn)), html("div", { class: "charts" }, ...[ranking(), heat()].filter(Boolean))].filter(Boolean));
    if (body.lastChild.children.length === 1) body.lastChild.classList.add("one");
  };
  let drawn = 0;
  if (explorer && metrics.length && rows.length > 1) {
    explorer.append(bar, body);
    render();
    addEventListener("resize", () => { if (Math.abs(Math.min(1140, explorer.clientWidth - 36) - drawn) > 4) render(); });
  }

  // The table: a click on a head sorts, a box filters, and a button saves the visible rows.
  const frame = document.getElementById("rows"), table = frame && frame.querySelector("table");
  if (!table) return;
  const body_rows = [...table.tBodies[0].rows], place = new Map(body_rows.map((tr, i) => [tr, i]));
  let sorted = null;
  const value = (tr, by) => {
    if (by.key) {
      const i = by.key.values.indexOf(rows[place.get(tr)].set[by.key.name]);
      return by.key.numbers ? by.key.numbers[i] : i;
    }
    const cell = tr.cells[by.column];
    return cell.dataset.v === undefined ? NaN : +cell.dataset.v;
  };
  const sort = (by, th, button) => {
    const down = sorted && sorted.button === button && !sorted.down;
    sorted = { button, down };
    for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
    for (const other of table.tHead.querySelectorAll("button")) other.classList.remove("up", "down");
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    button.classList.add(down ? "down" : "up");
    const list = body_rows.map(tr => [tr, value(tr, by)]);
    list.sort(([p, a], [q, b]) => isNaN(a) || isNaN(b) ? isNaN(a) - isNaN(b) : (down ? b - a : a - b) || place.get(p) - place.get(q));
    table.tBodies[0].append(...list.map(([tr]) => tr));
  };
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((th, column) => {
    const button = (text, by) => {
      const made = html("button", { type: "button", onclick: () => sort(by, th, made) }, text);
      return made;
    };
    if (column === 0) {
      const swept = keys.filter(key => key.values.length > 1);
      if (swept.length) th.replaceChildren(...swept.flatMap((key, i) => [i ? " · " : "", button(key.short, { key })]));
    } else if (body_rows.some(tr => tr.cells[column].dataset.v !== undefined)) th.replaceChildren(button(th.textContent, { column }));
  });

  const texts = body_rows.map((tr, i) => `${rows[i].label} ${Object.values(rows[i].set).join(" ")} ${tr.textContent}`.toLowerCase());
  const count = html("span", { class: "count", "aria-live": "polite" });
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    body_rows.forEach((tr, i) => {
      tr.hidden = !words.every(word => texts[i].includes(word));
      left += !tr.hidden;
    });
    count.textContent = left === rows.length ? `${rows.length} runs` : `${left} of ${rows.length} runs`;
  };
  const box = html("input", { type: "search", placeholder: "Filter runs", "aria-label": "Filter runs", oninput: filter });
  const save = () => {
    const shown = [...table.tBodies[0].rows].filter(tr => !tr.hidden).map(tr => rows[place.get(tr)]);
    const head = ["run", ...keys.map(key => key.name), ...metrics.map(metric => metric.label + unitOf(metric.unit)), "end", "expectations missed", "digest"];
    const lines = shown.map(row => [row.label, ...keys.map(key => row.set[key.name]), ...metrics.map(metric => row.values[metric.name]), row.end, row.missed, row.digest]);
    charts.save(charts.fileName(charts.pageName(), "runs") + ".csv", "text/csv", charts.csv([head, ...lines]));
  };
  const hint = html("span", { class: "hint" }, "more columns →");
  const hinted = () => { hint.hidden = frame.scrollLeft + frame.clientWidth > frame.scrollWidth - 8; };
  frame.before(html("div", { class: "toolbar" }, box, count, hint, html("button", { type: "button", onclick: save }, "CSV")));
  frame.addEventListener("scroll", hinted);
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "All runs");
  addEventListener("resize", hinted);
  filter();
  hinted();
})();
