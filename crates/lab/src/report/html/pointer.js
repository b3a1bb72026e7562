// Shows the curves' values below the pointer. The page is complete without it.
(() => {
  const tip = document.getElementById("tip");
  const show = v => v >= 1000 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(3).replace(/\.?0+$/, "");
  for (const plot of document.querySelectorAll("g[data-for]")) {
    const svg = plot.ownerSVGElement, cursor = plot.querySelector(".cursor");
    const data = JSON.parse(document.getElementById("data-" + plot.dataset.for).textContent);
    const [left, , right] = plot.dataset.box.split(",").map(Number);
    const hide = () => { tip.style.visibility = cursor.style.visibility = "hidden"; };
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointermove", event => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      const part = (at - left) / (right - left);
      if (part < 0 || part > 1) return hide();
      const [low, high] = data.x;
      const x = data.log ? low * Math.pow(high / low, part) : low + part * (high - low);
      tip.replaceChildren(`${data.xl}: ${show(x)}`);
      for (const s of data.s) {
        let best = null;
        for (const p of s.p) if (p[0] <= x || !best) best = p;
        const row = document.createElement("div"), dot = document.createElement("i");
        dot.className = "k" + s.c;
        row.append(dot, `${s.n}: ${best && best[0] <= x ? show(best[1]) : "–"}`);
        tip.append(row);
      }
      cursor.setAttribute("transform", `translate(${at} 0)`);
      const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = Math.max(4, Math.min(event.pageX + 14, room)) + "px";
      tip.style.top = event.pageY + 14 + "px";
      tip.style.visibility = cursor.style.visibility = "visible";
    });
  }
})();
