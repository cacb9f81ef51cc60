// The report in a real browser: content, interaction, accessibility, security.
//
// Needs Chromium (CHROMIUM, default /usr/bin/chromium) and the command (RESOURCE_TRACKER, default target/release).
// `tests/browser/run` installs and builds them.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { HtmlValidate } from 'html-validate';
import { chromium } from 'playwright-core';
import { launch, page } from './pages.mjs';
import { EVIL, long, odd, small, training } from './recordings.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
let browser;
before(async () => { browser = await chromium.launch(launch); });
after(() => browser.close());

/** Opens a page and logs its console messages, requests and dialogs. */
async function open({ url }, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const tab = await context.newPage();
  const heard = { console: [], requests: [], dialogs: 0 };
  tab.on('console', (message) => heard.console.push(message.text()));
  tab.on('pageerror', (error) => heard.console.push(String(error)));
  tab.on('request', (request) => { if (request.url() !== url && !request.url().startsWith('data:')) heard.requests.push(request.url()); });
  tab.on('dialog', (dialog) => { heard.dialogs++; dialog.dismiss(); });
  await tab.goto(url);
  return { tab, heard, close: () => context.close() };
}

function isQuiet(heard) {
  assert.deepEqual(heard, { console: [], requests: [], dialogs: 0 });
}

/** Number of steps of a series: the horizontal strokes of its path. */
const steps = (tab, chart, series = 0, path = 'line') =>
  tab.$eval(`#chart-${chart} [data-series="${series}"] .${path}`, (drawn) => drawn.getAttribute('d').match(/h-?\d|H/g)?.length ?? 0);

const area = async (tab, chart) => {
  const drawing = tab.locator(`#chart-${chart} .area`);
  await drawing.scrollIntoViewIfNeeded();
  return drawing.boundingBox();
};

async function drag(tab, chart, from, to) {
  const box = await area(tab, chart);
  const y = box.y + box.height / 2;
  await tab.mouse.move(box.x + box.width * from, y);
  await tab.mouse.down();
  await tab.mouse.move(box.x + box.width * (from + to) / 2, y, { steps: 3 });
  await tab.mouse.move(box.x + box.width * to, y, { steps: 3 });
  await tab.mouse.up();
}

const texts = (tab, selector) => tab.$$eval(selector, (found) => found.map((element) => element.textContent));
const now = (tab, chart, series = 0) => tab.textContent(`#chart-${chart} tr[data-series="${series}"] .now`);

test('unmeasured rows and suspended time are gaps', async () => {
  const { tab, heard, close } = await open(page(small()));
  // One of ten rows was not measured.
  assert.equal(await steps(tab, 'cpu', 0), 9);
  assert.equal(await steps(tab, 'cpu', 1), 10);
  const pieces = (series) => tab.$eval(`#chart-cpu [data-series="${series}"] .line`, (path) => path.getAttribute('d').match(/M/g).length);
  assert.deepEqual([await pieces(0), await pieces(1)], [3, 2]);
  isQuiet(heard);
  await close();
});

test('the peak of the statistics is drawn at its time and value', async () => {
  const { tab, heard, close } = await open(page(small()));
  // The run takes 13.75 s, 5 s of them suspended. Row 7 (3 CPUs) lasts from 11.5 s to 12.5 s. The axis ends at 8 CPUs.
  const box = await area(tab, 'cpu');
  const dot = await tab.$eval('#chart-cpu [data-series="0"] .peak', (path) => {
    const place = path.getPointAtLength(0).matrixTransform(path.getScreenCTM());
    return { x: place.x, y: place.y };
  });
  assert.ok(Math.abs(dot.x - (box.x + box.width * 12 / 13.75)) < 0.6, `${dot.x}`);
  assert.ok(Math.abs(dot.y - (box.y + box.height * (1 - 3 / 8))) < 0.6, `${dot.y}`);
  // The pixel has the colour of the series.
  const png = await tab.screenshot({ clip: { x: Math.round(dot.x), y: Math.round(dot.y), width: 1, height: 1 } });
  const colour = await tab.evaluate(async (bytes) => {
    const image = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: 'image/png' }));
    const canvas = new OffscreenCanvas(1, 1).getContext('2d');
    canvas.drawImage(image, 0, 0);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  }, [...png]);
  assert.deepEqual(colour, [0x17, 0x65, 0xd8]);
  isQuiet(heard);
  await close();
});

test('a peak of one second in two days is visible', async () => {
  const made = page(long());
  const { tab, heard, close } = await open(made);
  assert.ok(made.html.length < 1_200_000, `${made.html.length} bytes`);
  const drawn = await steps(tab, 'cpu');
  assert.ok(drawn >= 400 && drawn <= 481, `${drawn} steps`);
  // Band, dot and table show the peak of 7.5 CPUs.
  const top = await tab.$eval('#chart-cpu [data-series="0"] .band', (path) => path.getBBox().y);
  const dot = await tab.$eval('#chart-cpu [data-series="0"] .peak', (path) => path.getPointAtLength(0).y);
  assert.equal(top, dot);
  assert.equal(Math.round((1 - dot / 1000) * 8 * 100) / 100, 7.5);
  assert.deepEqual((await texts(tab, '#chart-cpu tbody tr:first-child td')).slice(1), ['1.45', '7.50']);
  // A zoomed chart has more steps.
  const held = await tab.evaluate(() => JSON.parse(document.getElementById('data').textContent).spans.length);
  assert.ok(held >= 3000, `${held} held`);
  await drag(tab, 'cpu', 0.5, 0.6);
  const seen = await steps(tab, 'cpu');
  assert.ok(seen > 300 && seen < 420, `${seen} steps for a tenth`);
  isQuiet(heard);
  await close();
});

test('the cursor shows the values of all charts', async () => {
  const { tab, heard, close } = await open(page(small()));
  const box = await area(tab, 'memory');
  // The middle of row 2, which lasts from 1.5 s to 2.5 s.
  const length = await tab.evaluate(() => JSON.parse(document.getElementById('data').textContent).length);
  const at = async (seconds) => tab.mouse.move(box.x + box.width * seconds / length, box.y + 40);
  await at(2);
  assert.deepEqual([await now(tab, 'memory'), await now(tab, 'cpu'), await now(tab, 'network')], ['300 MiB', '1.00', '1.00 MB/s']);
  const tip = await tab.textContent('#chart-memory .tip');
  assert.match(tip, /^2025-03-12 14:20:02\.\d+Process memory usage300 MiB/);
  assert.equal(await tab.isVisible('#chart-memory .tip'), true);
  assert.equal(await tab.isVisible('#chart-cpu .tip'), false);
  const lines = await tab.$$eval('.cursor', (found) => new Set(found.map((line) => line.getAttribute('x1'))).size);
  assert.equal(lines, 1);
  // Row 4 was not measured, and the machine was suspended at 10 s.
  await at(4);
  assert.deepEqual([await now(tab, 'cpu', 0), await now(tab, 'cpu', 1)], ['–', '1.40']);
  await at(10);
  assert.deepEqual([await now(tab, 'cpu', 0), await now(tab, 'cpu', 1)], ['–', '–']);
  await tab.mouse.move(0, 0);
  assert.equal(await now(tab, 'cpu'), '');
  isQuiet(heard);
  await close();
});

test('dragging zooms all charts, and a double click resets the zoom', async () => {
  const { tab, heard, close } = await open(page(training()));
  const labels = () => tab.$$eval('.chart', (charts) => charts.map((chart) => [...chart.querySelectorAll('.x text, .y text')].map((text) => text.textContent).join(' ')));
  const before = await labels();
  assert.equal(await tab.isVisible('#reset'), false);
  await drag(tab, 'cpu', 0.1, 0.2);
  const zoomed = await labels();
  zoomed.forEach((labels, number) => assert.notEqual(labels, before[number], `chart ${number}`));
  assert.equal(await tab.isVisible('#reset'), true);
  const box = await area(tab, 'vram');
  await tab.mouse.dblclick(box.x + box.width / 2, box.y + box.height / 2);
  // The axes by the script equal the axes by the command.
  assert.deepEqual(await labels(), before);
  assert.equal(await tab.isVisible('#reset'), false);
  await drag(tab, 'network', 0.6, 0.3);
  assert.notDeepEqual(await labels(), before);
  await tab.click('#reset');
  assert.deepEqual(await labels(), before);
  isQuiet(heard);
  await close();
});

test('the script draws the same paths as the command', async () => {
  // The chart is wide enough for all rows, so that both draw the same steps.
  const { tab, heard, close } = await open(page(small()));
  const drawings = () => tab.$$eval('.series path', (paths) => paths.map((path) => {
    const box = path.getBBox();
    return [path.getTotalLength(), box.x, box.y, box.width, box.height].map(Math.round).join(' ');
  }));
  const byCommand = await drawings();
  await drag(tab, 'cpu', 0.2, 0.4);
  assert.notDeepEqual(await drawings(), byCommand);
  await tab.click('#reset');
  assert.deepEqual(await drawings(), byCommand);
  isQuiet(heard);
  await close();
});

test('values at the cursor have the format of the tables', async () => {
  for (const recording of [small(), training()]) {
    const { tab, close } = await open(page(recording));
    for (const key of ['Home', 'End']) {
      await tab.focus('#chart-disk-space .plot');
      await tab.keyboard.press(key);
      assert.match(await now(tab, 'disk-space'), /^\d+(\.\d+)? GiB$/);
    }
    await close();
  }
  const { tab, close } = await open(page(odd['one row']()));
  await tab.focus('#chart-cpu .plot');
  await tab.keyboard.press('ArrowRight');
  const rows = await tab.$$eval('.legend tbody tr', (found) => found.map((row) => [...row.querySelectorAll('td')].slice(0, 3).map((cell) => cell.textContent)));
  assert.ok(rows.length >= 9);
  // With one row, the value (by the script) equals the mean and the maximum (by the command).
  for (const [here, mean, max] of rows) assert.deepEqual([here, here], [mean, max]);
  await close();
});

test('series are switched by click and keyboard, and the axis is adapted', async () => {
  const { tab, heard, close } = await open(page(small()));
  const button = tab.locator('#chart-memory tr[data-series="1"] button');
  const axis = () => texts(tab, '#chart-memory .y text');
  const before = await axis();
  await button.click();
  assert.equal(await button.getAttribute('aria-pressed'), 'false');
  assert.equal(await tab.isVisible('#chart-memory g[data-series="1"] .line'), false);
  assert.equal((await axis()).at(-1), '1000');
  assert.equal(await tab.textContent('#chart-memory .unit'), 'MiB');
  await button.focus();
  await tab.keyboard.press('Enter');
  assert.equal(await button.getAttribute('aria-pressed'), 'true');
  assert.deepEqual(await axis(), before);
  await tab.keyboard.press('Space');
  assert.equal(await button.getAttribute('aria-pressed'), 'false');
  isQuiet(heard);
  await close();
});

test('the keyboard moves the cursor, zooms and resets', async () => {
  const { tab, heard, close } = await open(page(training()));
  await tab.focus('#chart-cpu .plot');
  const labels = () => texts(tab, '#chart-cpu .x text');
  const before = await labels();
  await tab.keyboard.press('ArrowRight');
  assert.match(await now(tab, 'memory'), /GiB$/);
  await tab.keyboard.press('+');
  await tab.keyboard.press('+');
  assert.notDeepEqual(await labels(), before);
  await tab.keyboard.press('Escape');
  assert.deepEqual(await labels(), before);
  isQuiet(heard);
  await close();
});

test('snippets are copied unchanged', async () => {
  const { tab, heard, close } = await open(page(training()), { permissions: ['clipboard-read', 'clipboard-write'] });
  const names = await texts(tab, '.snippet h4');
  assert.deepEqual(names, ['Metaflow', 'Slurm', 'Kubernetes', 'Nextflow', 'Snakemake', 'AWS Batch']);
  await tab.click('.snippet:first-of-type button');
  await tab.waitForSelector('.snippet button:text("Copied")');
  assert.equal(await tab.evaluate(() => navigator.clipboard.readText()), '@resources(cpu=3, memory=8192, gpu=1)');
  isQuiet(heard);
  await close();
});

test('charts and tables are complete without scripts', async () => {
  const made = page(training());
  const { tab, heard, close } = await open(made, { javaScriptEnabled: false });
  const charts = tab.locator('.chart');
  assert.equal(await charts.count(), 8);
  for (let number = 0; number < 8; number++) {
    const box = await charts.nth(number).locator('.line').first().boundingBox();
    assert.ok(box.width > 300, `chart ${number} is drawn`);
    assert.equal(await charts.nth(number).locator('table').isVisible(), true);
  }
  assert.equal(await tab.isVisible('.help'), false);
  assert.equal(await tab.isVisible('#chart-cpu .now'), false);
  assert.equal(await tab.isVisible('#reset'), false);
  isQuiet(heard);
  await close();
});

test('markup in names is shown as text', async () => {
  const { tab, heard, close } = await open(page(odd.hostile()));
  assert.equal(await tab.textContent('h1'), EVIL);
  assert.equal(await tab.title(), `${EVIL} – resource-tracker`);
  const body = await tab.textContent('body');
  assert.ok(body.split(EVIL).length > 10);
  assert.ok(body.includes(`<img src="http://127.0.0.1:9/x" onerror="alert(2)">`));
  assert.equal(await tab.$$eval('img, script:not([type])', (found) => found.length), 1);
  isQuiet(heard);
  await close();
});

test('the policy blocks all other scripts, styles and requests', async () => {
  const { tab, close } = await open(page(small()));
  let asked = 0;
  const server = createServer((_, response) => { asked++; response.end(); }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const refused = await tab.evaluate(async (url) => {
    const broken = [];
    document.addEventListener('securitypolicyviolation', (event) => broken.push(event.effectiveDirective));
    const add = (name, properties) => document.body.append(Object.assign(document.createElement(name), properties));
    add('script', { textContent: 'window.harm = 1' });
    add('style', { textContent: 'body { display: none }' });
    add('img', { src: `${url}/x.png` });
    document.body.setAttribute('style', 'display: none');
    await fetch(url).catch(() => {});
    // The browser reports violations later. The last wait detects one too many.
    const rest = (ms) => new Promise((done) => setTimeout(done, ms));
    for (let waited = 0; broken.length < 5 && waited < 10_000; waited += 50) await rest(50);
    await rest(50);
    return { broken: broken.sort(), harm: window.harm ?? null };
  }, `http://127.0.0.1:${server.address().port}`);
  server.close();
  assert.deepEqual(refused, { broken: ['connect-src', 'img-src', 'script-src-elem', 'style-src-attr', 'style-src-elem'], harm: null });
  assert.equal(asked, 0);
  await close();
});

for (const [name, make] of Object.entries({ training, small, ...odd })) {
  test(`valid and accessible page: ${name}`, async () => {
    const made = page(make());
    const { tab, heard, close } = await open(made);
    const words = { running: 'Pending', failed: 'Failed', killed: 'Failed' };
    assert.equal(await tab.textContent('.badge'), words[name] ?? 'Finished');
    const charts = { training: 8, hostile: 8, 'no system table': 3, 'no samples': 0 };
    assert.equal(await tab.locator('.chart').count(), charts[name] ?? 5);
    const text = await tab.innerText('body');
    assert.ok(!/NaN|undefined|Infinity|null/.test(text), text.match(/.{0,30}(NaN|undefined|Infinity|null).{0,30}/)?.[0]);
    isQuiet(heard);

    const valid = await new HtmlValidate({ extends: ['html-validate:standard', 'html-validate:a11y'], rules: { 'long-title': 'off' } }).validateString(made.html);
    assert.deepEqual(valid.results.flatMap((result) => result.messages.map((message) => `${message.ruleId} ${message.line}:${message.column} ${message.message}`)), []);
    await close();

    for (const [colorScheme, width] of [['light', 1280], ['dark', 360], ['dark', 1280], ['light', 360]].slice(0, name === 'training' ? 4 : 2)) {
      // axe runs inside the page, where the policy would block it.
      const seen = await open(made, { colorScheme, bypassCSP: true, viewport: { width, height: 900 } });
      await seen.tab.evaluate(axe);
      const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
      const found = await seen.tab.evaluate((rules) => window.axe.run(document, { runOnly: rules, resultTypes: ['violations', 'passes'] }), rules);
      const violations = found.violations.map(({ id, nodes }) => `${colorScheme} ${width} ${id}: ${nodes[0].html.slice(0, 120)} ${nodes[0].failureSummary}`);
      assert.deepEqual(violations, []);
      assert.ok(found.passes.length > 15, 'axe has checked the page');
      await seen.close();
    }
  });
}

test('no horizontal scrolling and no layout shift at any width', async () => {
  const made = page(training());
  for (const width of [320, 360, 768, 1280, 2560]) {
    const { tab, close } = await open(made, { viewport: { width, height: 900 } });
    const [inside, outside] = await tab.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(inside <= outside, `${inside} px in ${outside}`);
    const moved = await tab.evaluate(() => new Promise((done) => {
      new PerformanceObserver((list) => done(list.getEntries().reduce((sum, entry) => sum + entry.value, 0))).observe({ type: 'layout-shift', buffered: true });
      setTimeout(() => done(0), 200);
    }));
    assert.equal(moved, 0, `moved by ${moved} at ${width} px`);
    await close();
  }
});
