"use strict";
// The page's own script: draws the charts, lets a reader choose a candidate, sorts and searches.
// Values from data are set as text only.
(() => {
  const byId = (id) => document.getElementById(id);
  const read = (id) => JSON.parse(byId(id).textContent);

  const setting = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 8 }));
  const shown = (value) => {
    if (value === null) return "–";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    const size = Math.abs(value);
    return (size < 1e-4 || size >= 1e6 ? value.toExponential(2) : value.toFixed(4)).replace("-", "−");
  };

  const [ink, line] = ["#3b4249", "#e3e7eb"];
  const config = {
    font: getComputedStyle(document.body).fontFamily,
    background: "transparent",
    view: { stroke: null },
    axis: {
      labelColor: ink, titleColor: ink, gridColor: line, domainColor: line, tickColor: line,
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
    },
    legend: { labelFontSize: 12, labelColor: ink },
  };

  function draw(element) {
    const options = { actions: false, renderer: "svg", ast: true, defaultStyle: false, config };
    const place = document.createElement("div"); // Vega names the element it draws into; the outer one keeps our name
    place.setAttribute("aria-hidden", "true");
    element.append(place);
    return vegaEmbed(place, read("spec-" + element.dataset.chart), options);
  }

  // All charts of candidates show the same choice. Each has an element, a view and its own measure.
  function chooser(charts, data) {
    const last = data.figures.length - 1;
    const onFront = data.pareto.map((flag, place) => (flag ? place : -1)).filter((place) => place >= 0);
    let picked = data.chosen;

    const title = (place) => {
      const names = [];
      if (place === data.before) names.push("the model before");
      if (place === data.chosen) names.push("the chosen edit");
      if (!names.length) names.push(data.pareto[place] ? "a candidate on the frontier" : "a candidate");
      return names.join(", ");
    };

    const pick = (place) => {
      picked = Math.min(Math.max(place, 0), last);
      const values = data.figures[picked];
      const name = title(picked);
      byId("picked-name").textContent = name[0].toUpperCase() + name.slice(1);
      byId("picked-figures").querySelectorAll("td").forEach((cell, i) => {
        cell.textContent = i < data.gap ? setting(values[i]) : shown(values[i]);
      });
      const rates = byId("picked-rates");
      if (rates) {
        const flat = data.of_group[picked].flat();
        rates.querySelectorAll("td").forEach((cell, i) => { cell.textContent = shown(flat[i]); });
      }
      charts.forEach(({ element, view, y }) => {
        element.setAttribute("aria-valuenow", String(picked + 1));
        element.setAttribute("aria-valuetext", name + ", gap " + shown(values[data.gap]) + ", "
          + data.names[y] + " " + shown(values[y]));
        if (view) view.signal("picked", picked).runAsync();
      });
    };

    const alongFront = (step) => {
      const places = step < 0 ? [...onFront].reverse() : onFront;
      const next = places.find((place) => (place - picked) * step > 0);
      if (next !== undefined) pick(next);
    };

    const keys = {
      ArrowLeft: () => pick(picked - 1),
      ArrowDown: () => pick(picked - 1),
      ArrowRight: () => pick(picked + 1),
      ArrowUp: () => pick(picked + 1),
      PageDown: () => alongFront(-1),
      PageUp: () => alongFront(1),
      Home: () => pick(0),
      End: () => pick(last),
    };
    const press = (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    };

    const go = {
      before: () => pick(data.before),
      chosen: () => pick(data.chosen),
      previous: () => alongFront(-1),
      next: () => alongFront(1),
    };
    document.querySelectorAll("[data-go]").forEach((button) => {
      button.addEventListener("click", go[button.dataset.go]);
    });

    const nearest = ({ element, view, y }, event) => {
      const box = element.querySelector("svg").getBoundingClientRect();
      const [left, top] = view.origin();
      const [across, up] = [view.scale("x"), view.scale("y")];
      let best = -1;
      let closest = 40 * 40;
      data.figures.forEach((row, place) => {
        if (row[data.gap] === null || row[y] === null) return;
        const dx = across(row[data.gap]) + left - (event.clientX - box.left);
        const dy = up(row[y]) + top - (event.clientY - box.top);
        if (dx * dx + dy * dy < closest) [best, closest] = [place, dx * dx + dy * dy];
      });
      return best;
    };
    charts.forEach((chart) => {
      chart.element.addEventListener("keydown", press);
      if (!chart.view) return; // the figures can be chosen without the picture
      chart.view.addEventListener("click", (event) => {
        const place = nearest(chart, event);
        if (place >= 0) pick(place);
      });
    });
    pick(picked);
  }

  function sorter(table) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const compare = (column) => (first, second) => {
      const [a, b] = [first.cells[column], second.cells[column]];
      const [x, y] = [a.dataset.sort, b.dataset.sort];
      if (x !== undefined && y !== undefined) return Number(x) - Number(y);
      if (x !== undefined || y !== undefined) return x !== undefined ? -1 : 1;
      return a.textContent.localeCompare(b.textContent, "en", { numeric: true });
    };
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].sort(compare(column));
        if (!up) rows.reverse();
        body.append(...rows);
      });
    });
  }

  function searcher(input) {
    const table = byId(input.getAttribute("aria-controls"));
    const found = input.parentElement.querySelector("output");
    const things = input.dataset.things || "rows"; // if they have names, only these are searched
    const searched = (row) => (input.dataset.things ? [row.cells[0]] : [...row.cells]);
    const rows = [...table.tBodies[0].rows];
    const texts = rows.map((row) => searched(row).map((cell) => cell.textContent).join("\n").toLowerCase());
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      rows.forEach((row, place) => {
        row.hidden = !wanted.every((word) => texts[place].includes(word));
        if (!row.hidden) count += 1;
      });
      found.textContent = (wanted.length ? count + " of " : "") + rows.length + " " + things;
    });
  }

  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((part) => { part.open = true; });
  });

  document.querySelectorAll("table.sortable").forEach(sorter);
  document.querySelectorAll("input[type=search]").forEach(searcher);
  const drawn = [...document.querySelectorAll("[data-chart]")].map(async (element) => {
    try {
      return { element, view: (await draw(element)).view };
    } catch (error) {
      return { element, view: null, error };
    }
  });
  Promise.all(drawn).then((charts) => {
    const picking = charts.filter(({ element }) => element.dataset.picks);
    if (picking.length) {
      const data = read(picking[0].element.dataset.picks);
      chooser(picking.map((chart) => ({ ...chart, y: data[chart.element.dataset.y] })), data);
    }
    const failed = charts.find(({ error }) => error);
    if (failed) throw failed.error;
    document.documentElement.dataset.ready = "yes";
  });
})();
