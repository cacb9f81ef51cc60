// Metaflow cards in a real browser. CARDS is a folder with the cards and their expected contents (expected.json).

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';
import { launch } from './pages.mjs';

const folder = process.env.CARDS;
const expected = Object.entries(JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8')));
let browser;
before(async () => { browser = await chromium.launch(launch); });
after(() => browser.close());

test('there are at least six cards', () => assert.ok(expected.length >= 6, `${expected.length} cards`));

for (const [name, { title, status, run }] of expected) {
  test(`the card "${name}" shows its run and makes no requests`, async () => {
    const url = pathToFileURL(join(folder, `${name}.html`)).href;
    const tab = await browser.newPage();
    const heard = [];
    tab.on('console', (message) => heard.push(message.text()));
    tab.on('pageerror', (error) => heard.push(String(error)));
    tab.on('request', (request) => { if (request.url() !== url && !request.url().startsWith('data:')) heard.push(request.url()); });
    await tab.goto(url);
    assert.equal(await tab.textContent('h1'), title);
    assert.ok((await tab.textContent('body')).includes(run), 'the id of the run');
    if (status) {
      assert.equal(await tab.textContent('.badge'), status);
      assert.ok(await tab.locator('#chart-cpu').isVisible(), 'a chart of the CPU');
      assert.ok(await tab.locator('#chart-memory').isVisible(), 'a chart of the memory');
      assert.match(await tab.textContent('footer'), /from Metaflow/);
      const blocks = await tab.$$eval('pre', (found) => found.map((element) => element.textContent));
      assert.ok(blocks.some((text) => /^@resources\(cpu=\d+, memory=\d+\)$/.test(text)), blocks.join('; '));
    } else {
      assert.match(await tab.textContent('.problem'), /untracked/);
    }
    assert.deepEqual(heard, []);
    await tab.close();
  });
}
