// Lets a reader zoom into lanes of bars: drag over a time, the buttons, or the keys + - ← → and Esc. The page is complete without it.
//
// A figure with lanes has one or more <svg data-lanes="low,high"> with the times at both ends. Each holds an inner <svg class="bars"> whose
// drawing units are those of the outer one, and <g class="times"> with the labelled grid, which is drawn again after a zoom.
(() => {
  const node = (outer, name, attrs, text) => {
    const made = document.createElementNS(outer.namespaceURI, name);
    for (const [key, value] of Object.entries(attrs)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const round = (value, step) => {
    const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9) + (String(step).includes("25") ? 1 : 0));
    return (+value.toFixed(Math.min(9, digits))).toLocaleString("en-US", { maximumFractionDigits: 9 });
  };

  for (const figure of document.querySelectorAll("figure")) {
    const drawings = [...figure.querySelectorAll("svg[data-lanes]")].map(outer => {
      const bars = outer.querySelector("svg.bars"), [left, top, width, height] = ["x", "y", "width", "height"].map(key => +bars.getAttribute(key));
      return { outer, bars, times: outer.querySelector("g.times"), left, top, width, height };
    });
    if (!drawings.length) continue;
    const [low, high] = drawings[0].outer.dataset.lanes.split(",").map(Number);
    let view = [low, high], whole;

    const show = () => {
      const part = (high - low) / (view[1] - view[0]);
      for (const d of drawings) {
        const x = d.left + (view[0] - low) / (high - low) * d.width;
        d.bars.setAttribute("viewBox", `${x} ${d.top} ${d.width / part} ${d.height}`);
        const rough = (view[1] - view[0]) / (d.width > 400 ? 10 : 4), power = 10 ** Math.floor(Math.log10(rough));
        const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= rough * 0.999);
        // Labels of marks belong to the whole time.
        d.outer.querySelector("g.marks").style.visibility = part > 1.0001 ? "hidden" : "visible";
        d.times.replaceChildren();
        for (let i = Math.ceil(view[0] / step - 1e-9); i <= view[1] / step + 1e-9; i++) {
          const at = (d.left + (i * step - view[0]) / (view[1] - view[0]) * d.width).toFixed(1);
          d.times.append(node(d.outer, "path", { class: "grid", d: `M${at} ${d.top}V${d.top + d.height}` }),
            node(d.outer, "text", { x: at, y: d.top + d.height + 17, "text-anchor": "middle" }, round(i * step, step)));
        }
      }
      whole.hidden = view[0] === low && view[1] === high;
    };
    const zoom = (from, until) => {
      const least = (high - low) / 20000, size = Math.min(high - low, Math.max(least, until - from));
      const start = Math.min(high - size, Math.max(low, from));
      view = [start, start + size];
      show();
    };
    const by = factor => {
      const middle = (view[0] + view[1]) / 2, half = (view[1] - view[0]) * factor / 2;
      zoom(middle - half, middle + half);
    };
    const move = part => zoom(view[0] + part * (view[1] - view[0]), view[1] + part * (view[1] - view[0]));

    const tools = document.createElement("div");
    tools.className = "tools";
    const button = (text, label, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.className = "reset";
      made.textContent = text;
      made.setAttribute("aria-label", label);
      made.addEventListener("click", act);
      return made;
    };
    whole = button("whole time", "show the whole time", () => zoom(low, high));
    tools.append(button("−", "zoom out", () => by(2)), button("+", "zoom in", () => by(0.5)), whole);
    figure.classList.add("live");
    figure.prepend(tools);

    for (const d of drawings) {
      const brush = node(d.outer, "rect", { class: "brush", y: d.top, height: d.height, visibility: "hidden" });
      d.outer.append(brush);
      d.outer.tabIndex = 0;
      const x = event => {
        const box = d.outer.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * d.outer.viewBox.baseVal.width;
        return Math.min(d.left + d.width, Math.max(d.left, at));
      };
      const time = at => view[0] + (at - d.left) / d.width * (view[1] - view[0]);
      let from;
      d.outer.addEventListener("pointerdown", event => {
        if (event.button) return;
        from = x(event);
        d.outer.setPointerCapture(event.pointerId);
      });
      d.outer.addEventListener("pointermove", event => {
        if (from === undefined) return;
        const until = x(event);
        brush.setAttribute("x", Math.min(from, until));
        brush.setAttribute("width", Math.abs(until - from));
        brush.setAttribute("visibility", "visible");
      });
      const end = event => {
        if (from === undefined) return;
        const [a, b] = [from, x(event)].sort((p, q) => p - q);
        from = undefined;
        brush.setAttribute("visibility", "hidden");
        if (event.type === "pointerup" && b - a > 4) zoom(time(a), time(b));
      };
      d.outer.addEventListener("pointerup", end);
      d.outer.addEventListener("pointercancel", end);
      d.outer.addEventListener("dblclick", () => zoom(low, high));
      d.outer.addEventListener("keydown", event => {
        const act = { "+": () => by(0.5), "=": () => by(0.5), "-": () => by(2), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), Escape: () => zoom(low, high) }[event.key];
        if (!act) return;
        event.preventDefault();
        act();
      });
    }
    show();
  }
})();
