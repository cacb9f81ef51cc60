// Cursor, zoom and series switches. The charts are complete without this script: it redraws them as chart.rs draws
// them, from the same numbers. Times are milliseconds since the start of the recording.
(() => {
'use strict';
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const make = (name, attributes = {}, parent) => {
  const svg = ['line', 'rect', 'text', 'g', 'path'].includes(name);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
};

for (const snippet of all('.snippet')) {
  const block = snippet.querySelector('pre');
  const name = snippet.querySelector('h4').textContent;
  const button = make('button', { type: 'button', 'aria-label': `Copy the ${name} snippet` }, snippet);
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    getSelection().selectAllChildren(block);
    try {
      await navigator.clipboard.writeText(block.textContent);
    } catch {
      document.execCommand('copy'); // for browsers that deny access to the clipboard
    }
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
}

// Tables of the page of a fleet: a click on a heading sorts, rows without a value come last.
for (const table of all('table.sortable')) {
  const body = table.tBodies[0], heads = all('thead th', table);
  const value = (row, column) => row.cells[column].dataset.value;
  for (const head of heads.filter((head) => head.classList.contains('by'))) {
    const column = head.cellIndex, isName = column === 0;
    const button = make('button', { type: 'button', class: 'sort' });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const first = isName ? 'ascending' : 'descending';
      const order = head.getAttribute('aria-sort') !== first ? first : isName ? 'descending' : 'ascending';
      heads.forEach((other) => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', order);
      const up = order === 'ascending' ? 1 : -1;
      const rows = [...body.rows].sort((one, other) => {
        if (isName) return up * one.cells[0].textContent.localeCompare(other.cells[0].textContent, 'en', { numeric: true });
        const [left, right] = [value(one, column), value(other, column)];
        return left === undefined || right === undefined ? (left === undefined) - (right === undefined) : up * (left - right);
      });
      body.append(...rows);
    });
  }
  const filter = table.closest('section').querySelector('.filter');
  const [input, output] = [filter.querySelector('input'), filter.querySelector('output')];
  const apply = () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of body.rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    const shown = [...body.rows].filter((row) => !row.hidden).length;
    output.textContent = wanted ? `${shown} of ${body.rows.length}` : '';
  };
  input.addEventListener('input', apply);
  filter.hidden = false;
  apply();
}

const source = document.getElementById('data');
if (!source) return;
const data = JSON.parse(source.textContent);
const { width: WIDTH, height: HEIGHT } = data, length = data.length * 1000;
const from = [], to = [];
let end = 0;
for (const span of data.spans) {
  const [gap, long] = Array.isArray(span) ? span : [0, span];
  from.push(end + gap);
  to.push(end += gap + long);
}

// Units, rounding and intervals come with the data, from human.rs and axis.rs.
const unit = (chart, value) => chart.units.find(([below]) => below === null || Math.abs(value) < below).slice(1);
const show = (chart, value) => {
  const [factor, name] = unit(chart, value);
  const scaled = value / factor;
  const whole = chart.scale === 'count' ? Number.isInteger(scaled) : scaled === 0 || (name && factor === 1);
  const decimals = whole ? 0 : data.decimals.find(([size]) => Math.abs(scaled) >= size)[1];
  return scaled.toFixed(decimals) + (name && ` ${name}`);
};

// The same axes as in axis.rs.
const side = (chart, max) => {
  if (!(max > 0)) max = 1;
  const [factor, name] = unit(chart, max);
  const raw = max / factor / 4, magnitude = 10 ** Math.floor(Math.log10(raw));
  const whole = chart.scale === 'count' || (factor === 1 && chart.scale !== 'cores');
  let step = [1, 2, 5, 10].find((round) => raw / magnitude <= round + 1e-9) * magnitude;
  if (whole) step = Math.max(step, 1);
  const rows = Math.max(Math.ceil(max / factor / step - 1e-9), 1);
  const decimals = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
  const marks = Array.from({ length: rows + 1 }, (_, row) => [row / rows, (row * step).toFixed(decimals)]);
  return { top: rows * step * factor, name, marks };
};
const local = (data.start + data.offset) * 1000;
const iso = (at) => new Date(Math.round(local + at)).toISOString();
const label = (at, step) => {
  const text = iso(at), clock = text.slice(11, 23);
  if (step >= 864e5 || (step >= 6e4 && clock.startsWith('00:00:00'))) {
    const month = new Date(text).toLocaleString('en-US', { month: 'short', timeZone: 'UTC' });
    return `${Number(text.slice(8, 10))} ${month}`;
  }
  return step >= 6e4 ? clock.slice(0, 5) : step >= 1e3 ? clock.slice(0, 8) : clock;
};
const bottom = ([low, high]) => {
  const [step] = data.steps.find(([step, most]) => (high - low) / step <= most) ?? [(high - low) / 6];
  const marks = [];
  for (let mark = Math.ceil((local + low) / step) * step - local; mark <= high; mark += step) {
    marks.push([(mark - low) / (high - low), label(mark, step)]);
  }
  return marks;
};

// The span that contains a moment, or the next span after it.
const spanAt = (moment) => {
  let low = 0, high = to.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (to[middle] <= moment) low = middle + 1; else high = middle;
  }
  return low;
};
// The visible spans, joined until about `most` are left.
const groups = ([low, high], most) => {
  const first = spanAt(low), spans = [];
  let last = first;
  while (last < from.length && from[last] < high) last++;
  const width = (high - low) / most, alone = last - first <= most;
  for (let at = first; at < last; at++) {
    const group = spans.at(-1);
    if (group && !alone && group.to - group.from < width && from[at] - group.to < width) {
      group.to = to[at];
      group.end = at + 1;
    } else {
      spans.push({ from: from[at], to: to[at], start: at, end: at + 1 });
    }
  }
  return spans;
};
const level = (series, group) => {
  let weight = 0, weighted = 0, min = Infinity, max = -Infinity;
  for (let at = group.start; at < group.end; at++) {
    const mean = series.mean[at];
    if (mean === null) continue;
    const long = Math.max(to[at] - from[at], 1e-6);
    weight += long;
    weighted += mean * long;
    min = Math.min(min, series.min ? series.min[at] : mean);
    max = Math.max(max, series.max ? series.max[at] : mean);
  }
  return weight > 0 ? { from: group.from, to: group.to, mean: weighted / weight, min, max } : null;
};

let view = [0, length], cursor = null;
const charts = data.charts.map((chart) => {
  const figure = document.getElementById(`chart-${chart.id}`);
  const find = (selector) => figure.querySelector(selector);
  const over = find('.over');
  const parts = {
    ...chart, figure, over, area: find('.area'), plot: find('.plot'),
    line: make('line', { class: 'cursor off', y1: 0, y2: '100%' }, over),
    picked: make('rect', { class: 'picked off', y: 0, height: '100%' }, over),
    tip: make('div', { class: 'tip off', 'aria-hidden': 'true' }, find('.plot')),
  };
  figure.classList.add('interactive');
  parts.series.forEach((series, number) => {
    for (const name of ['mean', 'min', 'max']) {
      series[name] = series[name]?.map((value) => (value === null ? null : value * series.unit));
    }
    series.on = true;
    series.drawing = find(`g[data-series="${number}"]`);
    series.now = find(`tr[data-series="${number}"] .now`);
    const key = find(`tr[data-series="${number}"] .key`);
    const button = make('button', { type: 'button', class: key.className, 'aria-pressed': 'true', title: series.name });
    make('span', {}, button).textContent = series.name;
    button.addEventListener('click', () => {
      series.on = !series.on;
      button.setAttribute('aria-pressed', series.on);
      series.drawing.classList.toggle('off', !series.on);
      draw(parts);
      point(cursor, null);
    });
    key.replaceWith(button);
  });
  return parts;
});

function draw(chart) {
  const [low, high] = view, full = low === 0 && high === length;
  const spans = groups(view, Math.max(chart.area.clientWidth, 200)); // a step is at least one pixel wide
  const shown = chart.series.filter((series) => series.on);
  let highest = 0;
  for (const series of shown) {
    series.levels = spans.map((group) => level(series, group));
    // The data is rounded and can be slightly above the true maximum.
    for (const found of series.levels) if (found) highest = Math.max(highest, Math.min(found.max, series.highest));
    if (full) highest = Math.max(highest, series.highest);
    if (series.peak && series.peak[0] >= low && series.peak[0] <= high) highest = Math.max(highest, series.peak[1]);
  }
  for (const [value] of chart.limits) if (value <= highest * data.limit_in_sight) highest = Math.max(highest, value);
  const axis = side(chart, highest);
  const x = (moment) => Math.round((Math.min(Math.max(moment, low), high) - low) / (high - low) * WIDTH);
  const y = (value) => Math.round((1 - value / axis.top) * HEIGHT);
  for (const series of shown) {
    let line = '', fill = '', band = '', back = '', start = 0, last = null;
    const close = () => {
      if (!last) return;
      fill += `V${HEIGHT}H${start}z`;
      band += `${back}z`;
      back = '';
    };
    for (const found of series.levels) {
      if (!found) { close(); last = null; continue; }
      const [left, right] = [x(found.from), x(found.to)];
      if (!last || found.from > last.to) {
        close();
        start = left;
        line += `M${left} ${y(found.mean)}`;
        fill += `M${left} ${y(found.mean)}`;
        band += `M${left} ${y(found.max)}`;
      }
      line += `V${y(found.mean)}H${right}`;
      fill += `V${y(found.mean)}H${right}`;
      band += `V${y(found.max)}H${right}`;
      back = `V${y(found.min)}H${left}${back}`;
      last = found;
    }
    close();
    const set = (name, path) => series.drawing.querySelector(name)?.setAttribute('d', path);
    set('.line', line);
    set('.fill', fill);
    set('.band', band);
    if (series.peak) {
      const inside = series.peak[0] >= low && series.peak[0] <= high;
      set('.peak', inside ? `M${x(series.peak[0])} ${y(series.peak[1])}h0` : '');
    }
  }
  const find = (selector) => chart.figure.querySelector(selector);
  const bands = data.phases.map(([from, to, name]) => [x(from), x(to), name]);
  const shaded = bands.map(([left, right], number) => (number % 2 ? `M${left} 0H${right}V${HEIGHT}H${left}z` : ''));
  find('.phase')?.setAttribute('d', shaded.join(''));
  all('.phase-label', chart.over).forEach((text) => text.remove());
  for (const [left, right, name] of bands) {
    const room = Math.floor((right - left) / WIDTH * chart.area.clientWidth / 7);
    if (room < 3) continue;
    const text = make('text', { class: 'phase-label', x: `${(left / WIDTH * 100).toFixed(2)}%`, dx: 4, dy: 12 }, chart.over);
    text.textContent = name.length > room ? `${name.slice(0, room - 1)}…` : name;
  }
  find('.unit').textContent = axis.name;
  find('.grid').setAttribute('d', axis.marks.map(([share]) => `M0 ${Math.round(HEIGHT * (1 - share))}H${WIDTH}`).join(''));
  const inside = chart.limits.filter(([value]) => value <= axis.top);
  find('.limit').setAttribute('d', inside.map(([value]) => `M0 ${y(value)}H${WIDTH}`).join(''));
  all('.limit-label', chart.over).forEach((text) => text.remove());
  for (const [value, name] of inside) {
    const down = 100 * (1 - value / axis.top);
    const place = { class: 'limit-label', x: '100%', y: `${down.toFixed(2)}%`, dx: -6, dy: down < 10 ? 13 : -5 };
    make('text', place, chart.over).textContent = name;
  }
  find('.y').replaceChildren(...axis.marks.map(([share, text]) => {
    const mark = make('text', { x: '100%', y: `${(100 * (1 - share)).toFixed(2)}%`, dx: -8, dy: 4 });
    mark.textContent = text;
    return mark;
  }));
  find('.x').replaceChildren(...bottom(view).map(([share, text], number) => {
    const mark = make('text', { x: `${(share * 100).toFixed(2)}%`, y: 15 });
    if (number % 2) mark.setAttribute('class', 'odd');
    mark.textContent = text;
    return mark;
  }));
}

// Shows the cursor at a moment in all charts, and a tooltip with values in the chart `at`.
function point(moment, at) {
  cursor = moment;
  const inside = moment !== null && moment >= view[0] && moment <= view[1];
  const span = Math.min(spanAt(moment), from.length - 1);
  const covered = inside && from[span] <= moment && moment <= to[span] + 1; // the end is rounded to a millisecond
  const share = inside ? (moment - view[0]) / (view[1] - view[0]) : 0;
  for (const chart of charts) {
    chart.line.classList.toggle('off', !inside);
    chart.line.setAttribute('x1', `${share * 100}%`);
    chart.line.setAttribute('x2', `${share * 100}%`);
    const values = chart.series.map((series) => {
      const mean = covered ? series.mean[span] : null;
      if (mean === null) return ['–', ''];
      const [min, max] = series.min ? [series.min[span], series.max[span]] : [mean, mean];
      return [show(chart, mean), min < max ? ` (${show(chart, min)} to ${show(chart, max)})` : ''];
    });
    chart.series.forEach((series, number) => { series.now.textContent = inside ? values[number][0] : ''; });
    const here = inside && chart === at;
    chart.tip.classList.toggle('off', !here);
    if (!here) continue;
    const rows = chart.series.flatMap((series, number) => {
      if (!series.on) return [];
      const row = make('div');
      const key = make('span', { class: `key tone${series.tone}` }, row);
      make('span', {}, key).textContent = series.name;
      make('span', {}, row).textContent = values[number].join('');
      return [row];
    });
    const time = make('b');
    const precise = view[1] - view[0] < 6e4 ? 23 : 19;
    time.textContent = iso(moment).replace('T', ' ').slice(0, precise);
    chart.tip.replaceChildren(time, ...rows);
    const [room, left] = [chart.plot.clientWidth, chart.plot.clientWidth - chart.area.clientWidth];
    const place = left + share * (room - left), wide = chart.tip.offsetWidth;
    const beside = place + 12 + wide <= room ? place + 12 : place - 12 - wide;
    chart.tip.style.transform = `translate(${Math.min(Math.max(beside, 0), Math.max(room - wide, 0))}px, .5rem)`;
  }
}

const reset = document.getElementById('reset');
function zoomTo(low, high) {
  // A zoom shows at least one millisecond and at most the whole recording.
  view = high - low >= 1 ? [Math.max(low, 0), Math.min(high, length)] : view;
  reset.hidden = view[0] === 0 && view[1] === length;
  charts.forEach(draw);
  point(null, null);
}
reset.addEventListener('click', () => zoomTo(0, length));

for (const chart of charts) {
  const { area, plot, picked } = chart;
  const moment = (event) => {
    const box = area.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    return view[0] + share * (view[1] - view[0]);
  };
  const percent = (at) => (at - view[0]) / (view[1] - view[0]) * 100;
  let down = null;
  const drop = () => {
    down = null;
    for (const { picked } of charts) picked.classList.add('off');
  };
  area.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    down = { moment: moment(event), x: event.clientX };
    area.setPointerCapture(event.pointerId);
  });
  area.addEventListener('pointermove', (event) => {
    const now = moment(event);
    point(now, chart);
    if (!down || Math.abs(event.clientX - down.x) < 5) return;
    const [low, high] = [Math.min(now, down.moment), Math.max(now, down.moment)];
    for (const { picked } of charts) {
      picked.classList.remove('off');
      picked.setAttribute('x', `${percent(low)}%`);
      picked.setAttribute('width', `${percent(high) - percent(low)}%`);
    }
  });
  area.addEventListener('pointerup', (event) => {
    const start = down;
    drop();
    if (!start || Math.abs(event.clientX - start.x) < 5) return;
    const now = moment(event);
    zoomTo(Math.min(now, start.moment), Math.max(now, start.moment));
  });
  area.addEventListener('pointercancel', drop);
  area.addEventListener('pointerleave', () => { if (!down) point(null, null); });
  area.addEventListener('dblclick', () => zoomTo(0, length));
  plot.tabIndex = 0;
  plot.setAttribute('role', 'group');
  plot.setAttribute('aria-label', `${chart.figure.querySelector('h3').textContent}: arrow keys move the cursor, plus and minus zoom, Escape resets`);
  plot.addEventListener('blur', () => point(null, null));
  plot.addEventListener('keydown', (event) => {
    const [low, high] = view, middle = cursor ?? (low + high) / 2;
    const step = Math.max((high - low) / 100, 1);
    const zoomBy = (factor) => {
      zoomTo(middle - (middle - low) * factor, middle + (high - middle) * factor);
      point(Math.min(Math.max(middle, view[0]), view[1]), chart);
    };
    const does = {
      ArrowLeft: () => point(Math.max(middle - step, low), chart),
      ArrowRight: () => point(Math.min(middle + step, high), chart),
      Home: () => point(low, chart),
      End: () => point(high, chart),
      Escape: () => zoomTo(0, length),
      '+': () => zoomBy(0.5),
      '-': () => zoomBy(2),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });
}
})();
