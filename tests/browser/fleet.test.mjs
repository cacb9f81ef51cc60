// The page of a fleet in a real browser: 300 jobs sorted and filtered, at two widths, and with scripts blocked.
//
// Needs Chromium, the command (RESOURCE_TRACKER) and the generator of synthetic runs (FLEET_RUNS).

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { HtmlValidate } from 'html-validate';
import { chromium } from 'playwright-core';
import { launch, program } from './pages.mjs';
import { EVIL } from './recordings.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const folder = mkdtempSync(join(tmpdir(), 'fleet-'));
const env = { ...process.env, RESOURCE_TRACKER_OFFLINE: '1', XDG_DATA_HOME: folder, XDG_CACHE_HOME: folder };
let browser, url, groups;

/** Writes the page of a store; returns its location. */
function report(store) {
  const html = `${store}.html`;
  execFileSync(program, ['fleet', 'report', '--store', store, '-o', html], { env });
  return pathToFileURL(html).href;
}

before(async () => {
  const store = join(folder, 'store');
  execFileSync(process.env.FLEET_RUNS, [store, '6000']);
  groups = JSON.parse(execFileSync(program, ['fleet', 'summary', '--json', '--store', store], { env, maxBuffer: 1 << 26 })).groups;
  url = report(store);
  browser = await chromium.launch(launch);
});
after(() => browser.close());

async function open(options = {}, page = url) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const tab = await context.newPage();
  const heard = [];
  tab.on('console', (message) => heard.push(message.text()));
  tab.on('pageerror', (error) => heard.push(String(error)));
  tab.on('dialog', (dialog) => { heard.push('dialog'); dialog.dismiss(); });
  tab.on('request', (request) => { if (request.url() !== page && !request.url().startsWith('data:')) heard.push(request.url()); });
  await tab.goto(page);
  return { tab, heard, close: () => context.close() };
}

const names = (tab) => tab.$$eval('.sortable tbody tr:not([hidden]) th', (found) => found.map((cell) => cell.textContent));
const column = (tab, number) =>
  tab.$$eval('.sortable tbody tr', (rows, number) => rows.map((row) => row.cells[number].dataset.value ?? null), number);

test('the page has every job of the summary, the most savings first, in less than 1 MB', async () => {
  const html = readFileSync(new URL(url), 'utf8');
  assert.ok(groups.length >= 300, `${groups.length} jobs`);
  assert.ok(html.length < 1 << 20, `${html.length} bytes`);
  const { tab, heard, close } = await open();
  assert.deepEqual(await names(tab), groups.map((group) => group.key ?? '(none)'));
  assert.deepEqual((await column(tab, 2)).map(Number), groups.map((group) => group.runs));
  const runs = groups.reduce((sum, group) => sum + group.runs, 0);
  assert.match(await tab.textContent('.status'), new RegExp(`^${runs} runs of ${groups.length} jobs, 2026-03-01 to `));
  assert.ok(await tab.locator('.spark .used').count() >= 300, 'a trend of each job');
  assert.equal(await tab.locator('#resize ~ .scroll tbody tr').count(), 10);
  assert.match(await tab.textContent('#resize ~ .scroll'), /\d+ CPUs?, [\d.]+ [GM]iB/);
  for (const counts of await tab.$$eval('.histogram', (found) => found.map((table) => [...table.tBodies[0].rows].map((row) => Number(row.cells[2].textContent))))) {
    assert.ok(counts.reduce((sum, count) => sum + count, 0) > runs * 0.9, `${counts}`);
  }
  assert.deepEqual(heard, []);
  await close();
});

test('a heading sorts the jobs both ways, and jobs without a value come last', async () => {
  const { tab, heard, close } = await open();
  const wanted = (number) => groups.map((group) => group[number]);
  for (const [number, key] of [[2, 'runs'], [7, 'cpu_hours_wasted'], [13, 'imbalance']]) {
    const head = tab.locator('.sortable thead th').nth(number);
    for (const [order, up] of [['descending', -1], ['ascending', 1]]) {
      await head.locator('button').click();
      assert.equal(await head.getAttribute('aria-sort'), order);
      const found = await column(tab, number);
      const expected = wanted(key).filter((value) => value !== null).sort((one, other) => up * (one - other));
      assert.equal(found.length, groups.length);
      found.forEach((value, at) => {
        if (at >= expected.length) assert.equal(value, null);
        else assert.ok(Math.abs(value - expected[at]) < 1e-3, `${key} ${at}: ${value}, ${expected[at]}`);
      });
    }
  }
  await tab.locator('.sortable thead th button').first().click();
  const sorted = await names(tab);
  assert.ok(sorted.indexOf('job-009') < sorted.indexOf('job-010'));
  assert.equal(await tab.locator('.sortable [aria-sort]').count(), 1);
  assert.deepEqual(heard, []);
  await close();
});

test('the filter shows matching jobs and their number', async () => {
  const { tab, heard, close } = await open();
  await tab.getByLabel('Filter jobs').fill('JOB-01');
  const found = await names(tab);
  assert.ok(found.length >= 5 && found.every((name) => name.startsWith('job-01')), `${found}`);
  assert.equal(await tab.textContent('.filter output'), `${found.length} of ${groups.length}`);
  await tab.getByLabel('Filter jobs').fill('');
  assert.equal((await names(tab)).length, groups.length);
  assert.deepEqual(heard, []);
  await close();
});

test('the page is valid and accessible', async () => {
  const html = readFileSync(new URL(url), 'utf8');
  const valid = await new HtmlValidate({ extends: ['html-validate:standard', 'html-validate:a11y'], rules: { 'long-title': 'off' } }).validateString(html);
  assert.deepEqual(valid.results.flatMap((result) => result.messages.map((message) => `${message.ruleId} ${message.line}:${message.column} ${message.message}`)), []);
  const { tab, heard, close } = await open({ bypassCSP: true });
  await tab.evaluate(axe);
  const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
  const found = await tab.evaluate((rules) => window.axe.run(document, { runOnly: rules, resultTypes: ['violations', 'passes'] }), rules);
  assert.deepEqual(found.violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 120)} ${nodes[0].failureSummary}`), []);
  assert.ok(found.passes.length > 15, 'axe has checked the page');
  assert.deepEqual(heard, []);
  await close();
});

test('a hostile name is text', async () => {
  const store = join(folder, 'hostile');
  execFileSync(program, ['run', '--quiet', '--job', EVIL, '--store', store, '--', 'true'], { env });
  const { tab, heard, close } = await open({}, report(store));
  assert.deepEqual(await names(tab), [EVIL]);
  assert.deepEqual(heard, []);
  await close();
});

for (const width of [360, 1280]) {
  for (const colorScheme of ['light', 'dark']) {
    for (const javaScriptEnabled of [true, false]) {
      test(`readable at ${width} px, ${colorScheme}, ${javaScriptEnabled ? 'with' : 'without'} scripts`, async () => {
        const { tab, heard, close } = await open({ viewport: { width, height: 900 }, colorScheme, javaScriptEnabled });
        const beside = await tab.locator('body *').evaluateAll((found) => {
          const scrolls = (element) => element.closest('.scroll') && !element.matches('.scroll');
          return found.filter((element) => !scrolls(element) && !element.closest('.unseen') && element.getBoundingClientRect().right > innerWidth + 0.5)
            .map((element) => element.outerHTML.slice(0, 100));
        });
        assert.deepEqual(beside, []);
        const name = tab.locator('.sortable tbody th').first();
        assert.ok(await name.isVisible());
        // The name of a job stays in sight while the table scrolls.
        await tab.locator('.sortable').evaluate((table) => table.parentElement.scrollTo(1000, 0));
        const box = await name.boundingBox();
        assert.ok(box.x >= 0 && box.x + box.width <= width, JSON.stringify(box));
        assert.equal(await tab.locator('.filter').isVisible(), javaScriptEnabled);
        assert.equal(await tab.locator('.sortable button').count() > 0, javaScriptEnabled);
        assert.deepEqual(heard, []);
        if (process.env.SHOTS) {
          mkdirSync(process.env.SHOTS, { recursive: true });
          await tab.locator('.sortable').evaluate((table) => table.parentElement.scrollTo(0, 0));
          await tab.screenshot({ path: join(process.env.SHOTS, `fleet-${width}-${colorScheme}-${javaScriptEnabled ? 'script' : 'plain'}.png`) });
          await tab.locator('#jobs').evaluate((heading) => heading.scrollIntoView());
          await tab.screenshot({ path: join(process.env.SHOTS, `fleet-${width}-${colorScheme}-${javaScriptEnabled ? 'script' : 'plain'}-jobs.png`) });
        }
        await close();
      });
    }
  }
}
