// Draws the fabric of a page: links coloured by a value that readers choose, over the whole run or at one time.
// Without it the page has a table of switches.
//
// A <figure> holds <div class="fabric"></div> and <script type="application/json" class="map-data"> with
//   {nodes: [name, ...],
//    groups: [{name, level: 0 host to leaf | 1 | 2, up: bool, plane, ends: {low: [node, ...], high: [node, ...]} | {same: group}}],
//    runs: [{label, layers: [{label, unit, values: [per group: [number or null by link] | 0 for all zero]}], faults: [per group: [link, ...]],
//            every: us, frames: [per frame, per group: [percent of capacity by link] | 0]}]}
// Small fabrics are drawn as switches and lines, others as matrices: a row per lower switch, a column per uplink. Links of NICs are
// matrices, too: a row per leaf.
(() => {
  const { html, svg, short } = charts, DRAWN = 64, tip = document.getElementById("tip");

  for (const script of document.querySelectorAll("script.map-data")) {
    const data = JSON.parse(script.textContent), figure = script.closest("figure"), box = figure.querySelector(".fabric");
    const groups = data.groups.map(group => ({ ...group, ...("same" in group.ends ? data.groups[group.ends.same].ends : group.ends) }));
    const cables = groups.filter(group => group.level > 0 && group.up).reduce((sum, group) => sum + group.low.length, 0);
    const asLines = cables <= DRAWN;
    const state = { run: 0, layer: 0, frame: 0 };
    const marks = []; // {group, link, node}: what is coloured
    const grids = new Map(); // the matrix of each group

    const run = () => data.runs[state.run];
    const at = (values, link) => values === 0 ? 0 : values[link];
    const timed = () => run().frames.length > 1 && state.layer === 0;
    const layer = () => timed() && state.frame
      ? { label: "use", unit: "%", values: run().frames[state.frame - 1] } : run().layers[state.layer];
    const unitOf = unit => unit ? " " + unit : "";
    const nameOf = ({ group, link }) => {
      const { low, high, up } = groups[group], ends = [data.nodes[low[link]], data.nodes[high[link]]];
      return (up ? ends : ends.reverse()).join(" → ");
    };

    // The scale of a layer is that of all its links and of all runs; over time it is the whole capacity.
    const most = () => {
      if (timed() && state.frame) return 100;
      let most = 0;
      for (const one of data.runs) for (const values of one.layers.filter(l => l.label === run().layers[state.layer].label).flatMap(l => l.values)) {
        if (values !== 0) for (const value of values) most = Math.max(most, value || 0);
      }
      return most || 1;
    };
    const colour = share => `color-mix(in srgb, var(--accent) ${Math.round(100 * share)}%, var(--grid))`;

    const paint = () => {
      const { values, unit } = layer(), top = most();
      for (const mark of marks) {
        const value = at(values[mark.group], mark.link);
        const none = value === null || value === undefined;
        mark.node.style[mark.line ? "stroke" : "fill"] = none ? "var(--faint)" : colour(Math.min(1, value / top));
        mark.node.classList.toggle("none", none);
        mark.node.classList.toggle("struck", run().faults[mark.group].includes(mark.link));
      }
      // A matrix without any value is not shown.
      for (const [g, node] of grids) node.hidden = values[g] !== 0 && values[g].every(value => value === null);
      scale.replaceChildren(html("span", {}, "0"), html("i", {}), html("span", {}, short(top) + unitOf(unit)));
      slider.hidden = !timed();
      if (timed()) {
        const n = run().frames.length;
        slider.querySelector("input").max = n;
        const [from, to] = [(state.frame - 1) * run().every, state.frame * run().every];
        slider.querySelector("output").textContent = state.frame ? `${short(from)} to ${short(to)} us` : "the whole run";
      }
    };

    const tell = (event, mark) => {
      const value = at(layer().values[mark.group], mark.link), text = value === null || value === undefined ? "not tried" : short(value) + unitOf(layer().unit);
      const struck = run().faults[mark.group].includes(mark.link) ? [html("div", {}, "with a fault")] : [];
      tip.replaceChildren(html("div", {}, nameOf(mark)), html("div", {}, `${layer().label}: ${text}`), ...struck);
      const right = event.clientX + 14 + tip.offsetWidth < document.documentElement.clientWidth;
      tip.style.left = Math.max(4, (right ? event.clientX + 14 : event.clientX - 14 - tip.offsetWidth) + scrollX) + "px";
      tip.style.top = event.clientY + 16 + scrollY + "px";
      tip.style.visibility = "visible";
    };
    const listen = (node, mark) => {
      mark.node = node;
      marks.push(mark);
      return node;
    };
    const drawing = (width, height, label, ...inside) => {
      const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, style: `max-width:${width}px` }, ...inside);
      const over = event => {
        const mark = marks.find(mark => mark.node === event.target || mark.hit === event.target);
        if (mark) tell(event, mark);
        else tip.style.visibility = "hidden";
      };
      made.addEventListener("pointermove", over);
      made.addEventListener("pointerdown", over);
      made.addEventListener("pointerleave", () => { tip.style.visibility = "hidden"; });
      return made;
    };

    // Switches in rows, the core on top; a cable is two lines, one per direction.
    const lines = () => {
      const levels = [[], [], []];
      groups.forEach(group => {
        if (group.level === 0) return;
        for (const [tier, ends] of [[group.level - 1, group.low], [group.level, group.high]]) {
          for (const node of ends) if (!levels[tier].includes(node)) levels[tier].push(node);
        }
      });
      const tiers = levels.filter(level => level.length);
      const most = Math.max(...tiers.map(tier => tier.length)), gap = 130, width = Math.max(340, Math.min(1100, most * 92)), height = (tiers.length - 1) * gap + 60;
      const place = new Map();
      tiers.forEach((tier, row) => tier.forEach((node, i) => place.set(node, [(i + 0.5) / tier.length * width, height - 32 - row * gap])));
      const all = [];
      groups.forEach((group, g) => {
        if (group.level === 0) return;
        const beside = new Map();
        group.low.forEach((low, link) => {
          const [x1, y1] = place.get(low), [x2, y2] = place.get(group.high[link]), length = Math.hypot(x2 - x1, y2 - y1);
          const key = low + "-" + group.high[link], n = beside.get(key) || 0;
          beside.set(key, n + 1);
          // The two directions lie side by side, parallel cables further out.
          const off = (group.up ? 1 : -1) * (2.2 + 5 * n), dx = (y2 - y1) / length * off, dy = -(x2 - x1) / length * off;
          const d = `M${(x1 - dx).toFixed(1)} ${(y1 - dy - 11).toFixed(1)}L${(x2 - dx).toFixed(1)} ${(y2 - dy + 11).toFixed(1)}`;
          const mark = { group: g, link, line: true };
          all.push(listen(svg("path", { class: "cable", d }), mark));
        });
      });
      const boxes = [...place].map(([node, [x, y]]) => {
        const wide = Math.min(width / most - 6, data.nodes[node].length * 6.6 + 12);
        return svg("g", {}, svg("rect", { class: "switch", x: (x - wide / 2).toFixed(1), y: y - 11, width: wide.toFixed(1), height: 22, rx: 5 }),
          svg("text", { x: x.toFixed(1), y: y + 4, "text-anchor": "middle", "font-size": Math.min(12, wide / data.nodes[node].length * 1.6).toFixed(1) }, data.nodes[node]));
      });
      return html("div", { class: "wide-map" }, drawing(width, height, "the fabric's links", ...all, ...boxes));
    };

    // A matrix per group: rows are lower switches, or leaves for links of NICs.
    const matrix = (group, g) => {
      const rows = [...new Set(group.level ? group.low : group.high)].sort((a, b) => a - b);
      const cells = new Map(rows.map(row => [row, []]));
      (group.level ? group.low : group.high).forEach((row, link) => cells.get(row).push(link));
      const columns = Math.max(...[...cells.values()].map(links => links.length));
      const size = Math.max(5, Math.min(18, Math.floor(430 / columns))), left = size >= 9 ? 76 : 8, step = size + (size > 7 ? 2 : 1);
      const drawn = rows.flatMap((row, i) => {
        const y = 4 + i * step;
        const name = size >= 9 ? [svg("text", { x: left - 6, y: y + size * 0.8, "text-anchor": "end", "font-size": Math.min(11, size + 1) }, data.nodes[row])] : [];
        return [...name, ...cells.get(row).map((link, column) =>
          listen(svg("rect", { class: "link", x: left + column * step, y, width: size, height: size, rx: size > 8 ? 2 : 0 }), { group: g, link }))];
      });
      const what = group.level ? `${rows.length} rows: lower switches; columns: their uplinks` : `${rows.length} rows: leaves; columns: hosts`;
      const width = left + columns * step + 4;
      const box = html("div", { class: "matrix", style: `flex-basis:${width}px` }, html("h4", {}, group.name), html("p", { class: "sub" }, what),
        drawing(width, 8 + rows.length * step, group.name, ...drawn));
      grids.set(g, box);
      return box;
    };

    const select = (label, names, key) => html("label", {}, html("span", {}, label),
      html("select", { onchange: event => { state[key] = +event.target.value; if (key === "run") rebuild(); paint(); } },
        ...names.map((name, i) => html("option", { value: i, selected: i === state[key] }, name))));
    const slider = html("label", { class: "when" }, html("span", {}, "Time: ", html("output", {})),
      html("input", { type: "range", min: 0, max: 1, value: 0, "aria-label": "Interval of the run; 0 is the whole run", oninput: event => { state.frame = +event.target.value; paint(); } }));
    const scale = html("div", { class: "scale", "aria-hidden": "true" });
    const bar = html("div", { class: "controls" });
    const rebuild = () => {
      state.layer = Math.min(state.layer, run().layers.length - 1);
      state.frame = Math.min(state.frame, run().frames.length);
      const runs = data.runs.length > 1 ? [select("Run", data.runs.map(one => one.label), "run")] : [];
      bar.replaceChildren(...runs, select("Colour by", run().layers.map(one => one.label + (one.unit ? ", " + one.unit : "")), "layer"), slider, scale);
    };
    rebuild();
    const parts = asLines ? [lines()] : [];
    // Links between switches first.
    const drawn = groups.map((group, g) => [group, g]).filter(([group]) => group.level === 0 || !asLines).sort((a, b) => b[0].level - a[0].level || a[1] - b[1]);
    const matrices = drawn.map(([group, g]) => matrix(group, g));
    box.append(bar, ...parts, html("div", { class: "matrices" }, ...matrices));
    paint();
  }
})();
