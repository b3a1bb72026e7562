// Makes the charts of a report interactive: values under the pointer and by keyboard, zoom, series to hide, CSV and SVG files.
// The page is complete without it.
//
// The page must have:
// - <div id="tip"></div> once.
// - A chart is a <figure> with an <h3>, one or more <svg> (one of them visible), and after them, with two series or more, a
//   <ul class="legend"> whose items are in the order of the series: <li><i class="k0"></i>name</li>.
// - Each <svg> holds <g data-for="ID" data-box="left,top,right,bottom">, the plot's edges in units of the drawing.
//   Everything in that <g> is drawn again from the data after a zoom.
// - <script type="application/json" id="data-ID"> holds
//   {x: [low, high], log: bool, y: [low, high], xl: "time, us", yl: "goodput, Gb/s", d: "slopes" | "steps" | "stacked",
//    s: [{n: name, c: colour 0..7, p: [[x, y], ...]}], marks: [{x, x2, label}]}
//   y, d and marks may be absent. Labels of marks are above the plot: its top leaves 13 units for each row of them. A mark without x2 is an instant; with x2 it lasts from x to x2.
//
// For other scripts: charts.mount(figure, id, spec) with the same data, and also in spec: ylog; ticks [[x, text], ...];
// shift per series, in units of the drawing; snap (the cursor stops at points only); dots; dash 0..3 per series; lo and hi per point as p[2] and p[3], drawn as a
// whisker, or as a band with spec.band; ends (names at the ends of lines); show(y) and showX(x) for values as text.
const charts = (() => {
  const NS = (holder => {
    holder.innerHTML = "<svg></svg>";
    return holder.firstChild.namespaceURI;
  })(document.createElement("div"));
  const DASHES = ["", "7 4", "2 4", "9 3 2 3"];
  const tip = document.getElementById("tip");

  const fill = (node, attrs, inside) => {
    for (const [key, value] of Object.entries(attrs || {})) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...inside.filter(child => child !== undefined));
    return node;
  };
  const html = (name, attrs, ...inside) => fill(document.createElement(name), attrs, inside);
  const svg = (name, attrs, ...inside) => fill(document.createElementNS(NS, name), attrs, inside);

  // A value as the tip shows it: three to four digits, commas between thousands.
  const short = value => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(+value.toFixed(size >= 100 ? 1 : size >= 1 ? 2 : 4));
  };

  const ticksOf = (low, high, log, about) => {
    const ticks = [];
    if (log && high / low > 3) {
      for (let decade = 10 ** Math.floor(Math.log10(low)); decade <= high; decade *= 10) {
        for (const m of high / low > 5000 ? [1] : [1, 2, 5]) if (m * decade >= low && m * decade <= high) ticks.push(m * decade);
      }
      return ticks;
    }
    const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= rough * 0.999) || rough;
    for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; i++) ticks.push(i * step);
    return ticks;
  };
  const labelsOf = ticks => {
    const step = Math.min(...ticks.slice(1).map((tick, i) => tick - ticks[i]));
    const digits = ticks.length > 1 ? Math.min(6, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))) : 3;
    return ticks.map(tick => (+tick.toFixed(digits + 1) || 0).toLocaleString("en-US", { maximumFractionDigits: digits + 1 }));
  };

  const scale = (low, high, log, from, to) => {
    const f = log ? v => Math.log10(Math.max(v, 1e-12)) : v => v;
    const a = f(low), b = f(high);
    return v => from + (f(v) - a) / (b - a) * (to - from);
  };
  const within = (low, high, log, part) => log ? low * (high / low) ** part : low + part * (high - low);

  const stacked = chart => chart.spec.d === "stacked";
  const visible = chart => chart.spec.s.filter((_, i) => !chart.hidden.has(i));
  const at = (points, x) => {
    let a = 0, b = points.length;
    while (a < b) {
      const middle = (a + b) >> 1;
      if (points[middle][0] <= x) a = middle + 1;
      else b = middle;
    }
    return points[a - 1];
  };

  // The range of y: that of the drawing; after zooming or hiding, the range of the visible points.
  const rangeY = chart => {
    const { spec, view } = chart, own = spec.y || [0, Math.max(...spec.s.flatMap(s => s.p.map(p => p[1])), 1e-9) * 1.05];
    const shown = visible(chart);
    if (!shown.length || (spec.d === "steps") || (view === spec.x && !chart.hidden.size)) return own;
    if (stacked(chart) && !chart.hidden.size) return own;
    let most = -Infinity, least = Infinity;
    const seen = p => { most = Math.max(most, p[3] ?? p[1]); least = Math.min(least, p[2] ?? p[1]); };
    if (stacked(chart)) {
      shown[0].p.forEach((p, i) => seen([p[0], shown.reduce((sum, s) => sum + (s.p[i] ? s.p[i][1] : 0), 0)]));
    } else {
      for (const s of shown) {
        for (const p of s.p) if (p[0] >= view[0] && p[0] <= view[1]) seen(p);
        const before = at(s.p, view[0]);
        if (before) seen(before);
      }
    }
    if (!(most > -Infinity)) return own;
    if (spec.ylog) return [least / 1.3, most * 1.3];
    if (own[0] > 0 && !stacked(chart)) return [Math.max(0, least - 0.15 * (most - least)), most + 0.15 * (most - least || most)];
    return [0, Math.max(most * 1.05, 1e-9)];
  };

  // The points inside the plot, with the curves cut at its edges.
  const cut = (points, left, right) => points.flatMap((p, i) => {
    const q = points[i - 1], out = [];
    for (const edge of [left, right]) {
      if (q && q[0] < edge && p[0] > edge) out.push(q.map((v, k) => k ? v + (p[k] - v) * (edge - q[0]) / (p[0] - q[0]) : edge));
    }
    if (p[0] >= left - 0.01 && p[0] <= right + 0.01) out.push(p);
    return out;
  });
  const slopes = points => points.map((p, i) => `${i ? "L" : "M"}${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("");
  const steps = (points, left, right, floor) => {
    let d = "", before;
    for (const [x, y] of points) {
      if (x < left) { before = y; continue; }
      if (!d) d = before === undefined ? `M${Math.min(x, right).toFixed(1)} ${floor}` : `M${left} ${before.toFixed(1)}`;
      d += x > right ? `H${right}` : `H${x.toFixed(1)}V${y.toFixed(1)}`;
      if (x > right) break;
    }
    return d || (before === undefined ? "" : `M${left} ${before.toFixed(1)}H${right}`);
  };
  const area = (below, points, end, x, y) => {
    let d = "", back = "";
    points.forEach((p, i) => {
      const from = x(p[0]).toFixed(1), to = x(points[i + 1] ? points[i + 1][0] : end).toFixed(1);
      d += `${d ? "V" : `M${from} `}${y(below[i] + p[1]).toFixed(1)}H${to}`;
      back = `V${y(below[i]).toFixed(1)}H${from}` + back;
    });
    return d + back + "Z";
  };

  // Marks are bands or lines. Their labels are above the plot, in several rows if they would overlap, as far as there is room.
  const drawMarks = (chart, parts, x, box) => {
    const [left, top, right, bottom] = box, taken = [];
    for (const mark of chart.spec.marks || []) {
      const a = x(mark.x), b = mark.x2 === undefined || mark.x2 === null ? a : x(mark.x2);
      if (b < left || a > right) continue;
      const from = Math.max(a, left), to = Math.min(b, right);
      if (to > from) parts.under.push(svg("rect", { class: "mark", x: from, y: top, width: to - from, height: bottom - top }));
      for (const edge of new Set([a, b])) {
        if (edge >= left && edge <= right) parts.under.push(svg("path", { class: "mark", d: `M${edge.toFixed(1)} ${top}V${bottom}` }));
      }
      const width = mark.label.length * 6.1, flip = from + width > right;
      const start = flip ? Math.max(left, right - width) : from;
      let row = 0;
      while (taken.some(t => t.row === row && start < t.end && start + width > t.start)) row++;
      const y = top - 5 - 13 * row;
      if (y < 8) continue;
      taken.push({ row, start: start - 6, end: start + width + 6 });
      parts.over.push(svg("text", { class: "mark", x: start.toFixed(1), y }, mark.label));
    }
  };

  // Names at the ends of lines, moved apart; no names if they do not fit.
  const drawEnds = (shown, x, y, box, parts) => {
    const [, top, right, bottom] = box;
    const ends = shown.filter(s => s.p.length).map(s => ({ s, want: y(s.p[s.p.length - 1][1]) }));
    if (ends.length * 13 > bottom - top + 12) return;
    ends.sort((a, b) => a.want - b.want);
    let above = top - 10;
    for (const end of ends) above = end.at = Math.max(end.want, above + 13);
    let below = bottom + 13;
    for (const end of ends.reverse()) below = end.at = Math.min(end.at, below - 13);
    for (const { s, at } of ends) {
      parts.over.push(svg("text", { class: "end k" + s.c, x: right + 8, y: (at + 4).toFixed(1) }, s.n));
    }
  };

  const draw = chart => chart.plots.forEach(g => {
    const { spec, view } = chart, box = g.dataset.box.split(",").map(Number), [left, top, right, bottom] = box;
    const yr = rangeY(chart), x = scale(...view, spec.log, left, right), y = scale(...yr, spec.ylog, bottom, top);
    const parts = { under: [], over: [] }, lines = svg("g");
    const yt = ticksOf(...yr, spec.ylog, bottom - top > 290 ? 7 : 5), ytext = labelsOf(yt);
    yt.forEach((tick, i) => {
      const at = y(tick).toFixed(1);
      parts.under.push(svg("path", { class: "grid", d: `M${left} ${at}H${right}` }),
        svg("text", { x: left - 7, y: +at + 4, "text-anchor": "end" }, ytext[i]));
    });
    let xt = (spec.ticks || []).filter(tick => tick[0] >= view[0] && tick[0] <= view[1]), free = -Infinity;
    if (!spec.ticks || (xt.length < 2 && !spec.cats)) {
      const ticks = ticksOf(...view, spec.log, right - left > 400 ? 7 : 4), text = labelsOf(ticks);
      xt = ticks.map((tick, i) => [tick, text[i]]);
    }
    for (const [tick, text] of xt) {
      const at = x(tick), room = Math.max(34, text.length * 6.6 + 8);
      if (at - room / 2 < free) continue;
      free = at + room / 2;
      parts.under.push(svg("path", { class: "tick", d: `M${at.toFixed(1)} ${bottom}v4` }),
        svg("text", { x: at.toFixed(1), y: bottom + 17, "text-anchor": "middle" }, text));
    }
    parts.under.push(svg("path", { class: "axis", d: `M${left} ${bottom}H${right}` }),
      svg("text", { class: "label", x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, spec.xl));
    drawMarks(chart, parts, x, box);
    const inside = v => Math.min(right, Math.max(left, x(v)));
    const shown = visible(chart), sum = shown.length ? shown[0].p.map(() => 0) : [];
    for (const s of shown) {
      if (stacked(chart)) {
        lines.append(svg("path", { class: "area k" + s.c, d: area(sum, s.p, spec.x[1], inside, y) }));
        s.p.forEach((p, i) => { sum[i] += p[1]; });
        continue;
      }
      const pixels = s.p.map(p => [x(p[0]) + (s.shift || 0), ...p.slice(1).map(y)]);
      const kept = cut(pixels, left, right), seen = pixels.filter(p => kept.includes(p)), spread = seen.filter(p => p[2] > p[3]);
      if (spec.band && spread.length) {
        const edge = [...kept.map(p => [p[0], p[3]]), ...kept.map(p => [p[0], p[2]]).reverse()];
        lines.append(svg("path", { class: "band k" + s.c, d: slopes(edge) + "Z" }));
      } else {
        for (const p of spread) {
          const [a, , lo, hi] = p.map(v => v.toFixed(1));
          lines.append(svg("path", { class: "whisker k" + s.c, d: `M${+a - 4} ${lo}h8M${+a - 4} ${hi}h8M${a} ${lo}V${hi}` }));
        }
      }
      if (!spec.cats) {
        const d = spec.d === "steps" ? steps(pixels, left, right, bottom) : slopes(kept);
        lines.append(svg("path", { class: "curve k" + s.c, d, "stroke-dasharray": DASHES[s.dash || 0] || undefined }));
      }
      if (spec.dots) for (const p of seen) lines.append(svg("circle", { class: "k" + s.c, cx: p[0].toFixed(1), cy: p[1].toFixed(1), r: 3.6 }));
    }
    if (spec.ends) drawEnds(shown, x, y, box, parts);
    g.replaceChildren(...parts.under, lines, ...parts.over,
      svg("rect", { class: "brush", y: top, height: bottom - top }),
      svg("path", { class: "cursor", d: `M0 ${top}V${bottom}` }));
  });

  // The values at x, as lines of text: [class of the dot or "", text].
  const MOST = 14;
  const valuesAt = (chart, x) => {
    const { spec } = chart, shown = visible(chart);
    // The unit stands behind the last comma of the axis's label.
    const unit = /, ([^,]{1,8})$/.exec(spec.yl || "");
    const show = spec.show || (value => short(value) + (unit ? " " + unit[1] : ""));
    const rows = [["", spec.showX ? spec.showX(x) : `${spec.xl}: ${short(x)}`]];
    for (const mark of spec.marks || []) if (x >= mark.x && x <= (mark.x2 ?? mark.x)) rows.push(["", mark.label]);
    for (const s of shown.slice(0, MOST)) {
      const p = spec.snap ? s.p.find(p => p[0] === x) : at(s.p, x);
      const spread = p && p[3] > p[2] ? ` (${show(p[2])} to ${show(p[3])})` : "";
      rows.push(["k" + s.c, `${s.n}${s.n ? ": " : ""}${p ? show(p[1]) + spread : "–"}`]);
    }
    if (shown.length > MOST) rows.push(["", `and ${shown.length - MOST} more`]);
    return rows;
  };

  const plotOf = chart => chart.plots.find(g => g.ownerSVGElement.getClientRects().length) || chart.plots[0];
  // Charts over the same time: their cursors and views move together.
  const all = [];
  const beside = chart => chart.spec.xl && chart.spec.xl.startsWith("time, ")
    ? all.filter(other => other !== chart && other.spec.xl === chart.spec.xl) : [];
  const hide = chart => {
    tip.style.visibility = "hidden";
    for (const one of [chart, ...beside(chart)]) for (const g of one.plots) g.querySelector(".cursor").style.visibility = "hidden";
  };
  const follow = (chart, x) => {
    const g = plotOf(chart), [left, , right] = g.dataset.box.split(",").map(Number), cursor = g.querySelector(".cursor");
    const inside = x >= chart.view[0] && x <= chart.view[1];
    if (inside) cursor.setAttribute("transform", `translate(${scale(...chart.view, chart.spec.log, left, right)(x)} 0)`);
    cursor.style.visibility = inside ? "visible" : "hidden";
  };
  // Puts the cursor at x and the values next to it. A screen reader gets the values as a sentence.
  const point = (chart, x, aloud) => {
    const g = plotOf(chart), [left, top, right] = g.dataset.box.split(",").map(Number);
    if (chart.spec.snap) {
      const stops = stopsOf(chart);
      if (!stops.length) return;
      const place = scale(...chart.view, chart.spec.log, 0, 1);
      x = stops.reduce((best, stop) => Math.abs(place(stop) - place(x)) < Math.abs(place(best) - place(x)) ? stop : best);
    }
    chart.cursor = x;
    const at = scale(...chart.view, chart.spec.log, left, right)(x), cursor = g.querySelector(".cursor");
    const rows = valuesAt(chart, x);
    tip.replaceChildren(...rows.map(([dot, text]) => html("div", {}, dot ? html("i", { class: dot }) : undefined, text)));
    cursor.setAttribute("transform", `translate(${at} 0)`);
    const box = g.ownerSVGElement.getBoundingClientRect(), zoom = box.width / g.ownerSVGElement.viewBox.baseVal.width;
    const page = document.documentElement, near = box.left + at * zoom;
    const right_of = near + 14 + tip.offsetWidth < page.clientWidth;
    tip.style.left = Math.max(4, (right_of ? near + 14 : near - 14 - tip.offsetWidth) + scrollX) + "px";
    tip.style.top = box.top + (top + 4) * zoom + scrollY + "px";
    tip.style.visibility = cursor.style.visibility = "visible";
    for (const other of beside(chart)) follow(other, x);
    if (aloud) chart.say.textContent = rows.map(row => row[1]).join("; ");
  };
  const stopsOf = chart => {
    const stops = new Set(visible(chart).flatMap(s => s.p.map(p => p[0])));
    return [...stops].filter(x => x >= chart.view[0] && x <= chart.view[1]).sort((a, b) => a - b);
  };

  const zoom = (chart, low, high) => {
    for (const other of beside(chart)) zoomOne(other, low, high);
    zoomOne(chart, low, high);
  };
  const zoomOne = (chart, low, high) => {
    const { spec } = chart, a = Math.max(low, spec.x[0]), b = Math.min(high, spec.x[1]);
    const place = scale(...spec.x, spec.log, 0, 1);
    if (place(b) - place(a) < 1e-3) return;
    chart.view = a <= spec.x[0] && b >= spec.x[1] ? spec.x : [a, b];
    chart.reset.hidden = chart.view === spec.x;
    draw(chart);
    hide(chart);
  };
  const closer = (chart, factor) => {
    const { view, spec } = chart, place = scale(...view, spec.log, 0, 1);
    const middle = chart.cursor >= view[0] && chart.cursor <= view[1] ? place(chart.cursor) : 0.5;
    zoom(chart, ...[middle - factor * middle, middle + factor * (1 - middle)].map(part => within(...view, spec.log, part)));
  };
  const reset = chart => zoom(chart, Math.min(...[chart, ...beside(chart)].map(c => c.spec.x[0])), Math.max(...[chart, ...beside(chart)].map(c => c.spec.x[1])));

  const listen = (chart, drawing) => {
    const g = drawing.querySelector("g[data-for]"), [left, , right] = g.dataset.box.split(",").map(Number);
    const partAt = event => {
      const box = drawing.getBoundingClientRect();
      return ((event.clientX - box.left) * drawing.viewBox.baseVal.width / box.width - left) / (right - left);
    };
    const clamped = part => Math.min(1, Math.max(0, part));
    let from = null;
    drawing.addEventListener("pointerdown", event => {
      const part = partAt(event);
      if (event.pointerType === "touch" || event.button || part < 0 || part > 1) return;
      from = part;
      drawing.setPointerCapture(event.pointerId);
      event.preventDefault();
      drawing.focus({ preventScroll: true });
    });
    drawing.addEventListener("pointermove", event => {
      const part = partAt(event);
      if (from !== null) {
        const [a, b] = [from, clamped(part)].sort((a, b) => a - b), brush = g.querySelector(".brush");
        brush.setAttribute("x", left + a * (right - left));
        brush.setAttribute("width", (b - a) * (right - left));
      } else if (part < 0 || part > 1) return hide(chart);
      point(chart, within(...chart.view, chart.spec.log, clamped(part)));
    });
    const let_go = event => {
      if (from === null) return;
      const [a, b] = [from, clamped(partAt(event))].sort((a, b) => a - b);
      from = null;
      g.querySelector(".brush").setAttribute("width", 0);
      if (event.type === "pointerup" && (b - a) * (right - left) > 6) {
        zoom(chart, ...[a, b].map(part => within(...chart.view, chart.spec.log, part)));
      }
    };
    drawing.addEventListener("pointerup", let_go);
    drawing.addEventListener("pointercancel", let_go);
    drawing.addEventListener("pointerleave", () => hide(chart));
    drawing.addEventListener("blur", () => hide(chart));
    drawing.addEventListener("dblclick", () => reset(chart));
    drawing.addEventListener("keydown", event => {
      const stops = stopsOf(chart), last = stops.length - 1;
      const now = stops.findIndex(x => x >= (chart.cursor ?? -Infinity)), here = now < 0 ? last : now;
      const far = event.shiftKey ? 10 : 1;
      const first = chart.cursor === undefined;
      const go = { ArrowLeft: first ? last : here - far, ArrowRight: first ? 0 : here + far, Home: 0, End: last }[event.key];
      if (go !== undefined && last >= 0) point(chart, stops[Math.min(last, Math.max(0, go))], true);
      else if (event.key === "+" || event.key === "=") closer(chart, 0.5);
      else if (event.key === "-") closer(chart, 2);
      else if (event.key === "Escape") (chart.view === chart.spec.x ? hide : reset)(chart);
      else return;
      event.preventDefault();
    });
    drawing.setAttribute("tabindex", "0");
    drawing.setAttribute("role", "application");
    drawing.setAttribute("aria-roledescription", "chart");
    const label = drawing.getAttribute("aria-label") || `${chart.spec.yl} over ${chart.spec.xl}`;
    drawing.setAttribute("aria-label", `${label}. Left and right arrow read values, plus and minus zoom, Escape resets.`);
  };

  // A click on a name in the legend shows or hides its series.
  const toggles = (chart, legend) => {
    const buttons = [...legend.children].map((item, i) => {
      const press = alone => {
        if (alone) chart.spec.s.forEach((_, j) => { if (j === i) chart.hidden.delete(j); else chart.hidden.add(j); });
        else if (!chart.hidden.delete(i)) chart.hidden.add(i);
        if (chart.hidden.size === chart.spec.s.length) chart.hidden.clear();
        buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(!chart.hidden.has(j))));
        draw(chart);
      };
      const title = "Click to hide or show; double click to show it alone";
      const button = html("button", { type: "button", title, "aria-pressed": "true", onclick: () => press(false), ondblclick: () => press(true) });
      button.append(...item.childNodes);
      item.replaceChildren(button);
      return button;
    });
  };

  const save = (name, kind, text) => {
    const url = URL.createObjectURL(new Blob([text], { type: kind }));
    html("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  };
  // Quote texts that begin like a formula, so that spreadsheets keep them as text.
  const csv = rows => rows.map(row => row.map(cell => {
    const text = cell === null || cell === undefined ? "" : String(typeof cell === "number" ? +cell.toPrecision(10) : cell);
    const safe = typeof cell === "string" && /^[=+@\t]|^-\D/.test(text) ? "'" + text : text;
    return /[",\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  }).join(",")).join("\r\n") + "\r\n";
  const fileName = (...parts) => parts.join("-").toLowerCase().replace(/[^a-z0-9.]+/g, "-").replace(/^-|-$/g, "");
  const pageName = () => document.title.replace(/ · Strandway$/, "");

  const saveCsv = chart => {
    const { spec } = chart, xs = [...new Set(spec.s.flatMap(s => s.p.map(p => p[0])))].sort((a, b) => a - b);
    const spread = spec.s.some(s => s.p.some(p => p.length > 2));
    const columns = spec.s.flatMap(s => (spread ? ["", " least", " most"] : [""]).map(suffix => (s.n || spec.yl) + suffix));
    const byX = spec.s.map(s => new Map(s.p.map(p => [p[0], p])));
    const ticks = new Map(spec.ticks || []);
    const rows = xs.map(x => [spec.cats ? ticks.get(x) : x, ...byX.flatMap(points => {
      const p = points.get(x);
      return spread ? [p?.[1], p?.[2], p?.[3]] : [p?.[1]];
    })]);
    save(fileName(pageName(), chart.id) + ".csv", "text/csv", csv([[spec.xl, ...columns], ...rows]));
  };

  // The drawing as a file of its own: computed colours on every element, a title above it, the legend below.
  const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-size", "font-weight"];
  const saveSvg = chart => {
    hide(chart);
    const shown = plotOf(chart).ownerSVGElement, copy = shown.cloneNode(true);
    const { width, height } = shown.viewBox.baseVal, page = getComputedStyle(document.documentElement);
    const originals = shown.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((node, i) => {
      const style = getComputedStyle(originals[i]);
      for (const key of KEPT) node.setAttribute(key, style.getPropertyValue(key));
    });
    for (const node of copy.querySelectorAll(".cursor,.brush")) node.remove();
    for (const node of copy.querySelectorAll("[class]")) node.removeAttribute("class");
    const colour = name => page.getPropertyValue(name).trim(), TITLE = 46;
    let x = 12, y = height + 14;
    const legend = chart.spec.s.length < 2 ? [] : visible(chart).flatMap(s => {
      const room = s.n.length * 6.8 + 40;
      if (x > 12 && x + room > width) { x = 12; y += 18; }
      const at = x;
      x += room;
      return [svg("path", { d: `M${at} ${y - 4}h16`, stroke: colour("--k" + s.c), "stroke-width": 3, "stroke-dasharray": DASHES[s.dash || 0] || "none" }),
        svg("text", { x: at + 22, y, fill: colour("--soft") }, s.n)];
    });
    const bottom = legend.length ? y + 12 : height;
    const title = chart.figure.querySelector("h3")?.textContent || "";
    copy.prepend(svg("rect", { x: 0, y: -TITLE, width, height: bottom + TITLE, fill: colour("--card") }),
      svg("text", { x: 12, y: -26, fill: colour("--ink"), "font-size": 15, "font-weight": 600 }, title),
      svg("text", { x: 12, y: -9, fill: colour("--soft") }, chart.spec.yl));
    copy.append(...legend);
    for (const name of ["class", "tabindex", "role", "aria-label", "aria-roledescription"]) copy.removeAttribute(name);
    const size = { xmlns: NS, viewBox: `0 ${-TITLE} ${width} ${bottom + TITLE}`, width, height: bottom + TITLE, "font-size": 12 };
    fill(copy, { ...size, "font-family": "system-ui, sans-serif", fill: colour("--soft") }, []);
    save(fileName(pageName(), chart.id) + ".svg", "image/svg+xml", new XMLSerializer().serializeToString(copy));
  };

  const menu = chart => {
    const entry = (text, act) => html("button", { type: "button", onclick: () => { act(chart); box.open = false; } }, text);
    const box = html("details", { class: "menu" }, html("summary", { "aria-label": "Chart menu", title: "Zoom and files" }, "⋯"),
      html("div", {}, entry("Zoom in", () => closer(chart, 0.5)), entry("Zoom out", () => closer(chart, 2)),
        entry("Values as CSV", saveCsv), entry("Drawing as SVG", saveSvg)));
    box.addEventListener("focusout", event => { if (!box.contains(event.relatedTarget)) box.open = false; });
    box.addEventListener("keydown", event => {
      if (event.key !== "Escape") return;
      box.open = false;
      box.firstChild.focus();
    });
    return box;
  };

  const mount = (figure, id, spec) => {
    const chart = { figure, id, spec, view: spec.x, hidden: new Set(), plots: [...figure.querySelectorAll(`g[data-for="${id}"]`)] };
    chart.say = html("p", { class: "say", "aria-live": "polite" });
    chart.reset = html("button", { type: "button", class: "reset", hidden: true, onclick: () => reset(chart) }, "Reset zoom");
    figure.classList.add("live");
    figure.append(html("div", { class: "tools" }, chart.reset, menu(chart)), chart.say);
    draw(chart);
    all.push(chart);
    for (const g of chart.plots) listen(chart, g.ownerSVGElement);
    const legend = figure.querySelector("ul.legend");
    if (legend && legend.children.length === spec.s.length) toggles(chart, legend);
    return chart;
  };

  for (const data of document.querySelectorAll("script[type='application/json'][id^='data-']")) {
    const id = data.id.slice(5), g = document.querySelector(`g[data-for="${id}"]`);
    const figure = g && g.closest("figure");
    if (figure) mount(figure, id, JSON.parse(data.textContent));
  }
  return { mount, html, svg, short, csv, save, fileName, pageName };
})();
