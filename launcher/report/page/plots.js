"use strict";
// Plots as SVG (and one canvas), drawn for the width that there is and drawn again when it changes.

const svgSpace = "http://www.w3.org/2000/svg";

function svg(tag, attributes, text) {
  const element = document.createElementNS(svgSpace, tag);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function html(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// 3 significant digits, thousands as k, M, G.
function short(value) {
  if (!Number.isFinite(value) || value === 0) return "0";
  const size = Math.abs(value);
  const units = [[1e9, "G"], [1e6, "M"], [1e4, "k", 1e3]];
  for (const [from, letter, divisor] of units) {
    if (size >= from) return trim(value / (divisor || from)) + letter;
  }
  return size >= 1000 ? Math.round(value).toLocaleString("en") : trim(value);
}

function trim(value) {
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  const digits = size >= 10 ? 1 : size >= 1 ? 2 : Math.min(6, 2 - Math.floor(Math.log10(size)));
  return String(Number(value.toFixed(digits)));
}

function percent(share) {
  const value = share * 100;
  if (!(value > 0)) return "0 %";
  return (value >= 9.95 ? value.toFixed(0) : value >= 0.95 ? value.toFixed(1) : trim(value)) + " %";
}

function duration(seconds) {
  if (seconds < 60) return trim(seconds) + " s";
  const whole = Math.round(seconds);
  const two = (n) => String(n).padStart(2, "0");
  const h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = whole % 60;
  return h > 0 ? h + ":" + two(m) + ":" + two(s) : m + ":" + two(s);
}

function milliseconds(ms) {
  return ms >= 10000 ? duration(ms / 1000) : ms >= 1000 ? trim(ms / 1000) + " s" : trim(ms) + " ms";
}

// A figure among the tiles.
function tile(label, value, unit, note) {
  const box = html("div", "tile");
  const number = html("div", "value", value);
  if (unit) number.append(html("span", "unit", unit));
  box.append(html("div", "label", label), number);
  if (note) box.append(html("div", "note", note));
  document.getElementById("tiles").append(box);
}

// Round numbers from 0 to at least `most`, about `count` of them.
function ticks(most, count) {
  if (!(most > 0)) return [0, 1];
  const rough = most / count;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].find((s) => s * power >= rough * 0.999) * power;
  const result = [];
  for (let i = 0; i * step < most * 0.9999 + step; ++i) result.push(i * step);
  return result;
}

function timeTicks(most, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  const step = most < count ? 0 : steps.find((s) => s * count >= most) || 86400;
  if (step === 0) return ticks(most, count).filter((t) => t <= most * 1.0001);
  const result = [];
  for (let t = 0; t <= most * 1.0001; t += step) result.push(t);
  return result;
}

const tip = {
  show(event, rows) {
    const box = document.getElementById("tip");
    box.replaceChildren(...rows.map(([label, value]) => {
      const row = html("div");
      row.append(html("span", "soft", label), html("span", "", value));
      return row;
    }));
    box.hidden = false;
    const room = document.documentElement;
    const left = event.clientX + 14 + box.offsetWidth > room.clientWidth
      ? Math.max(4, event.clientX - 14 - box.offsetWidth) : event.clientX + 14;
    const top = Math.min(event.clientY + 12, room.clientHeight - box.offsetHeight - 4);
    box.style.left = left + "px";
    box.style.top = Math.max(4, top) + "px";
  },
  hide() { document.getElementById("tip").hidden = true; },
};

// Puts a heading into the figure and calls draw(body, width) now and whenever the width changes.
function plot(name, title, keys, points, draw) {
  const figure = document.querySelector('[data-plot="' + name + '"]');
  figure.dataset.points = points;
  const caption = html("figcaption");
  caption.append(html("h3", "", title));
  for (const [label, color] of keys) {
    const key = html("span", "key");
    const swatch = html("i");
    swatch.style.setProperty("--tint", "var(--" + color + ")");
    key.append(swatch, label);
    caption.append(key);
  }
  const body = html("div");
  figure.replaceChildren(caption, body);
  if (points === 0) {
    body.append(html("p", "empty", "nothing was measured"));
    return caption;
  }
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(body.clientWidth);
    if (width < 40 || width === drawn) return;
    drawn = width;
    body.replaceChildren();
    draw(body, width);
  };
  redraw();
  new ResizeObserver(redraw).observe(body);
  return caption;
}

function frame(width, height, label) {
  const picture = svg("svg", {
    viewBox: "0 0 " + width + " " + height, height: height, role: "img", "aria-label": label,
  });
  return picture;
}

// Neighbours averaged until there are at most `most`.
function thinned(values, most) {
  const together = Math.ceil(values.length / most);
  if (together <= 1) return values;
  const result = [];
  for (let i = 0; i < values.length; i += together) {
    const part = values.slice(i, i + together);
    result.push(part.reduce((a, b) => a + b, 0) / part.length);
  }
  return result;
}

// series: [{name, color, values, format}], all of the same length, one value per `interval` seconds.
function timePlot(name, title, series, interval, options) {
  const count = series[0].values.length;
  const keys = series.length > 1 ? series.map((s) => [s.name, s.color]) : [];
  plot(name, title, keys, count, (body, width) => {
    const height = 210, left = 46, right = 8, top = 8, bottom = 24;
    const shown = series.map((s) => thinned(s.values, Math.max(24, Math.floor((width - left) / 3))));
    const length = shown[0].length;
    const span = interval * count;
    const largest = Math.max(...shown.map((values) => Math.max(...values)));
    const scale = options.most ? [0, 0.25, 0.5, 0.75, 1].map((t) => t * options.most)
      : ticks(largest > 0 ? largest : 1, 4);
    const most = scale[scale.length - 1];
    const x = (i) => left + (length > 1 ? i / (length - 1) : 0.5) * (width - left - right);
    const y = (value) => top + (1 - Math.min(value, most) / most) * (height - top - bottom);
    const picture = frame(width, height, title);
    for (const tick of scale) {
      picture.append(svg("line", {class: tick === 0 ? "axis" : "gridline", x1: left, x2: width - right,
        y1: y(tick), y2: y(tick)}));
      picture.append(svg("text", {x: left - 6, y: y(tick) + 4, "text-anchor": "end"}, options.format(tick)));
    }
    for (const t of timeTicks(span, Math.max(2, Math.floor(width / 110)))) {
      const at = left + t / span * (width - left - right);
      picture.append(svg("text", {x: Math.min(at, width - 2), y: height - 6,
        "text-anchor": t === 0 ? "start" : at > width - 30 ? "end" : "middle"}, duration(t)));
    }
    shown.forEach((values, index) => {
      const color = "var(--" + series[index].color + ")";
      const line = values.map((value, i) => x(i).toFixed(1) + "," + y(value).toFixed(1));
      if (index === 0) {
        picture.append(svg("polygon", {fill: color, "fill-opacity": 0.1,
          points: [x(0) + "," + y(0), ...line, x(length - 1) + "," + y(0)].join(" ")}));
      }
      picture.append(svg("polyline", {class: "series", fill: "none", stroke: color, "stroke-width": 1.7,
        "stroke-linejoin": "round", "data-series": series[index].name, points: line.join(" ")}));
      if (length === 1) picture.append(svg("circle", {cx: x(0), cy: y(values[0]), r: 3, fill: color}));
    });
    const cursor = svg("line", {class: "cursor", y1: top, y2: height - bottom, visibility: "hidden"});
    picture.append(cursor);
    picture.addEventListener("pointermove", (event) => {
      const at = (event.offsetX - left) / (width - left - right);
      const i = Math.max(0, Math.min(length - 1, Math.round(at * (length - 1))));
      cursor.setAttribute("x1", x(i));
      cursor.setAttribute("x2", x(i));
      cursor.setAttribute("visibility", "visible");
      tip.show(event, [["at", duration(span * i / Math.max(1, length - 1))],
        ...shown.map((values, index) => [series[index].name, (series[index].format || options.format)(values[i])])]);
    });
    picture.addEventListener("pointerleave", () => {
      cursor.setAttribute("visibility", "hidden");
      tip.hide();
    });
    body.append(picture);
  });
}

// Powers of ten around `least` and `largest`.
function powers(least, largest) {
  const result = [Math.pow(10, Math.floor(Math.log10(least)))];
  while (result[result.length - 1] < largest * 0.9999) result.push(result[result.length - 1] * 10);
  return result;
}

// Curves over a few named places. curves: [{name, color, values}] with a value for each place, null
// where there is none. The scale is logarithmic where values differ by more than a factor of 30.
function curvePlot(name, title, places, across, curves, format) {
  const known = curves.flatMap((curve) => curve.values).filter((value) => value !== null);
  const largest = Math.max(...known, 0), least = Math.min(...known);
  const logarithmic = least > 0 && largest / least > 30;
  const keys = curves.length > 1 ? curves.map((curve) => [curve.name, curve.color]) : [];
  plot(name, title + (logarithmic ? ", logarithmic" : ""), keys, known.length, (body, width) => {
    const height = 230, left = 58, right = 14, top = 8, bottom = 42;
    const scale = logarithmic ? powers(least, largest) : ticks(largest > 0 ? largest : 1, 4);
    const from = scale[0], to = scale[scale.length - 1];
    const share = (value) => logarithmic ? Math.log(value / from) / Math.log(to / from) : value / to;
    const x = (i) => left + (places.length > 1 ? 0.04 + 0.92 * i / (places.length - 1) : 0.5) * (width - left - right);
    const y = (value) => top + (1 - share(value)) * (height - top - bottom);
    const picture = frame(width, height, title);
    for (const tick of scale) {
      picture.append(svg("line", {class: tick === from ? "axis" : "gridline", x1: left, x2: width - right,
        y1: y(tick), y2: y(tick)}));
      picture.append(svg("text", {x: left - 6, y: y(tick) + 4, "text-anchor": "end"}, format(tick)));
    }
    const every = Math.ceil(places.length * 48 / Math.max(1, width - left - right));
    places.forEach((place, i) => {
      if (i % every === 0) picture.append(svg("text", {x: x(i), y: height - 24, "text-anchor": "middle"}, place));
    });
    picture.append(svg("text", {x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle"}, across));
    curves.forEach((curve) => {
      const color = "var(--" + curve.color + ")";
      const points = curve.values.map((value, i) => [i, value]).filter(([, value]) => value !== null);
      picture.append(svg("polyline", {class: "series", fill: "none", stroke: color, "stroke-width": 1.7,
        "stroke-linejoin": "round", "data-series": curve.name,
        points: points.map(([i, value]) => x(i).toFixed(1) + "," + y(value).toFixed(1)).join(" ")}));
      for (const [i, value] of points) {
        const point = svg("circle", {cx: x(i), cy: y(value), r: 4, fill: color});
        point.addEventListener("pointermove", (event) => tip.show(event,
          [[places[i], ""], ...curves.map((other) => [other.name, other.values[i] === null ? "–" : format(other.values[i])])]));
        point.addEventListener("pointerleave", tip.hide);
        picture.append(point);
      }
    });
    body.append(picture);
  });
}

// of: a distribution of the report. Bins are as wide as they are in time, on a logarithmic axis.
function distributionPlot(name, title, of, color) {
  const caption = plot(name, title, [], of.bins.length, (body, width) => {
    const height = 190, left = 8, right = 8, top = 24, bottom = 24;
    // At least a third from end to end, so that little differences look little.
    const low = Math.log(of.bins[0][0]), high = Math.log(of.bins[of.bins.length - 1][1]);
    const pad = Math.max(0, (Math.log(4 / 3) - (high - low)) / 2);
    const first = low - pad, last = high + pad;
    const x = (ms) => left + (Math.log(Math.max(ms, 1e-6)) - first) / Math.max(last - first, 1e-9) * (width - left - right);
    const largest = Math.max(...of.bins.map((bin) => bin[2]));
    const picture = frame(width, height, title);
    const floor = height - bottom;
    for (const [from, to, count] of of.bins) {
      const tall = count / largest * (floor - top);
      const bar = svg("rect", {class: "bar", x: x(from) + 0.5, width: Math.max(1, x(to) - x(from) - 1),
        y: floor - tall, height: tall, fill: "var(--" + color + ")", "fill-opacity": 0.75});
      const target = svg("rect", {x: x(from), width: Math.max(1, x(to) - x(from)), y: top,
        height: floor - top, fill: "transparent"});
      target.addEventListener("pointermove", (event) => tip.show(event, [
        [milliseconds(from) + " – " + milliseconds(to), short(count)],
        ["share", percent(count / of.count)]]));
      target.addEventListener("pointerleave", tip.hide);
      picture.append(bar, target);
    }
    picture.append(svg("line", {class: "axis", x1: left, x2: width - right, y1: floor, y2: floor}));
    let end = -Infinity;
    for (const [label, ms] of [["P50", of.p50], ["P95", of.p95], ["P99", of.p99]]) {
      const at = Math.max(left, Math.min(width - right, x(ms)));
      picture.append(svg("line", {class: "mark", "data-mark": label, x1: at, x2: at, y1: top - 4, y2: floor}));
      const from = Math.min(Math.max(at - 12, end + 4), width - 28);
      if (from > end) {
        picture.append(svg("text", {class: "strong", x: from, y: top - 9}, label));
        end = from + 24;
      }
    }
    for (const [log, anchor] of [[first, "start"], [(first + last) / 2, "middle"], [last, "end"]]) {
      picture.append(svg("text", {x: x(Math.exp(log)), y: height - 7, "text-anchor": anchor},
        milliseconds(Math.exp(log))));
    }
    body.append(picture);
  });
  if (of.count === 0) return;
  const figures = html("span", "figures");
  for (const [label, ms] of [["P50", of.p50], ["P95", of.p95], ["P99", of.p99]]) {
    figures.append(label + " ", html("b", "", milliseconds(ms)), "  ");
  }
  caption.append(figures);
}

// rows: [{label, parts: [seconds]}], one bar each, all of one scale.
function stackedBars(name, title, keys, rows) {
  plot(name, title, keys, rows.length, (body, width) => {
    const bar = rows.length > 16 ? 10 : 18, gap = rows.length > 16 ? 4 : 8, left = Math.min(96, Math.max(...rows.map((r) => r.label.length)) * 8 + 12);
    const height = rows.length * (bar + gap) + 26;
    const most = Math.max(...rows.map((r) => r.parts.reduce((a, b) => a + b, 0)), 1e-9);
    const picture = frame(width, height, title);
    const x = (seconds) => left + seconds / most * (width - left - 8);
    rows.forEach((row, index) => {
      const y = index * (bar + gap);
      picture.append(svg("text", {x: left - 8, y: y + bar / 2 + 4, "text-anchor": "end"}, row.label));
      let sum = 0;
      row.parts.forEach((seconds, part) => {
        const rect = svg("rect", {class: "bar", x: x(sum), width: Math.max(0, x(sum + seconds) - x(sum)),
          y: y, height: bar, fill: "var(--" + keys[part][1] + ")"});
        rect.addEventListener("pointermove", (event) => tip.show(event, [
          [row.label, row.note || ""],
          ...keys.map(([label], i) => [label, percent(row.parts[i] / row.parts.reduce((a, b) => a + b, 0))])]));
        rect.addEventListener("pointerleave", tip.hide);
        picture.append(rect);
        sum += seconds;
      });
    });
    for (const t of timeTicks(most, Math.max(2, Math.floor(width / 130)))) {
      picture.append(svg("text", {x: x(t), y: height - 6,
        "text-anchor": t === 0 ? "start" : x(t) > width - 30 ? "end" : "middle"}, duration(t)));
    }
    body.append(picture);
  });
}

// rows [layers][experts] of counts, each layer on its own scale: what counts is how even it is.
function heatMap(name, title, rows) {
  const layers = rows.length, experts = layers > 0 ? rows[0].length : 0;
  const caption = plot(name, title, [], layers * experts, (body, width) => {
    const left = 58, top = 6, bottom = 22;
    const cell = Math.max(6, Math.min(26, Math.floor(360 / layers)));
    const height = layers * cell;
    const wide = (width - left) / experts;
    const picture = frame(width, top + height + bottom, title);
    const canvas = html("canvas");
    const sharp = window.devicePixelRatio || 1;
    canvas.width = Math.round((width - left) * sharp);
    canvas.height = Math.round(height * sharp);
    const paint = () => {
      const heat = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim();
      const context = canvas.getContext("2d");
      context.clearRect(0, 0, canvas.width, canvas.height);
      rows.forEach((row, layer) => {
        const largest = Math.max(...row, 1);
        row.forEach((count, expert) => {
          context.fillStyle = "rgb(" + heat + " / " + (0.06 + 0.94 * count / largest) + ")";
          const gap = wide > 8 ? 1 : 0;
          context.fillRect(expert * wide * sharp, layer * cell * sharp, (wide - gap) * sharp, (cell - gap) * sharp);
        });
      });
    };
    paint();
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
    const holder = html("div");
    holder.style.cssText = "position:relative;height:" + (top + height + bottom) + "px";
    canvas.style.cssText = "position:absolute;left:" + left + "px;top:" + top + "px;width:" + (width - left) + "px;height:" + height + "px";
    picture.style.position = "absolute";
    const every = Math.ceil(layers * 14 / Math.max(height, 1));
    for (let layer = 0; layer < layers; layer += every) {
      picture.append(svg("text", {x: left - 8, y: top + layer * cell + cell / 2 + 4, "text-anchor": "end"}, "layer " + layer));
    }
    const step = Math.ceil(26 / wide);
    for (let expert = 0; expert < experts; expert += step) {
      picture.append(svg("text", {x: left + (expert + 0.5) * wide, y: top + height + 15, "text-anchor": "middle"}, expert));
    }
    canvas.addEventListener("pointermove", (event) => {
      const expert = Math.min(experts - 1, Math.max(0, Math.floor(event.offsetX / wide)));
      const layer = Math.min(layers - 1, Math.max(0, Math.floor(event.offsetY / cell)));
      const sum = rows[layer].reduce((a, b) => a + b, 0);
      tip.show(event, [["layer " + layer, "expert " + expert], ["rows", short(rows[layer][expert])],
        ["share", percent(sum > 0 ? rows[layer][expert] / sum : 0)], ["even would be", percent(1 / experts)]]);
    });
    canvas.addEventListener("pointerleave", tip.hide);
    holder.append(picture, canvas);
    body.append(holder);
  });
  const uneven = rows.map((row) => Math.max(...row) * experts / row.reduce((a, b) => a + b, 0)).filter(Number.isFinite);
  const worst = Math.max(...uneven, 1), mean = uneven.reduce((a, b) => a + b, 0) / Math.max(1, uneven.length);
  const figures = html("span", "figures", "each layer on its own scale; its busiest expert has ");
  figures.append(html("b", "", trim(mean) + "×"), " an even share in the mean, ", html("b", "", trim(worst) + "×"), " at most");
  caption.append(figures);
}
