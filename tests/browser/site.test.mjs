// The documentation site in target/site, which `make docs` builds, in a real browser.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, extname, join, posix } from 'node:path';
import { after, before, test } from 'node:test';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { launch } from './pages.mjs';

const SITE = fileURLToPath(new URL('../../target/site', import.meta.url));
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const LOOKED_AT = ['', 'guides/slurm/', 'why/', 'guides/report/', 'install/', 'numbers/'];
const TYPES = { '.html': 'text/html', '.css': 'text/css', '.js': 'text/javascript', '.json': 'application/json', '.svg': 'image/svg+xml', '.png': 'image/png' };
let server, browser, origin;

before(async () => {
  server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url, 'http://site').pathname);
    const file = join(SITE, path.endsWith('/') ? `${path}index.html` : path);
    if (!file.startsWith(SITE) || !existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' }).end(readFileSync(file));
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  origin = `http://127.0.0.1:${server.address().port}`;
  browser = await chromium.launch(launch);
});

after(async () => {
  await browser?.close();
  server?.close();
});

const newContext = (width, colorScheme) => browser.newContext({ viewport: { width, height: 900 }, colorScheme, reducedMotion: 'reduce' });

async function open(context, path, waitUntil = 'networkidle') {
  const tab = await context.newPage();
  const elsewhere = [];
  tab.on('request', (request) => { if (!request.url().startsWith(origin) && !request.url().startsWith('data:')) elsewhere.push(request.url()); });
  await tab.goto(`${origin}/${path}`, { waitUntil });
  return { tab, elsewhere };
}

test('every link of the site leads to a page and to a heading on it', () => {
  const pages = readdirSync(SITE, { recursive: true }).filter((name) => name.endsWith('.html') && name !== '404.html');
  const ids = new Map(pages.map((name) => [name, new Set([...readFileSync(join(SITE, name), 'utf8').matchAll(/ id="?([^"\s>]+)/g)].map((id) => id[1]))]));
  let links = 0;
  for (const name of pages) {
    const html = readFileSync(join(SITE, name), 'utf8');
    for (const [, target] of html.matchAll(/ (?:href|src)="?([^"\s>]+)/g)) {
      if (/^[a-z]+:/.test(target)) {
        assert.match(target, /^data:/, `${name}: \`${target}\` is on another server`);
        continue;
      }
      links += 1;
      const [path, fragment] = target.split('#');
      let file = path === '' ? name : posix.normalize(posix.join(dirname(name), path));
      if (file.endsWith('/') || file === '.' || file === '..') file = posix.join(file, 'index.html');
      assert.ok(existsSync(join(SITE, file)), `${name}: \`${target}\` leads nowhere`);
      if (fragment && ids.has(file)) assert.ok(ids.get(file).has(decodeURIComponent(fragment)), `${name}: no heading for \`${target}\``);
    }
  }
  assert.ok(pages.length > 30 && links > 1000, `${pages.length} pages, ${links} links`);
});

async function check(context, path, waitUntil) {
  const { tab, elsewhere } = await open(context, path, waitUntil);
  await tab.evaluate(AXE);
  const { violations } = await tab.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
  assert.deepEqual(found, [], path);
  const scrolled = await tab.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(scrolled, 0, `/${path} scrolls sideways`);
  assert.deepEqual(elsewhere, [], path);
  await tab.close();
}

for (const path of LOOKED_AT) {
  for (const [width, scheme] of [[360, 'dark'], [1280, 'light'], [1280, 'dark']]) {
    test(`/${path} at ${width} px, ${scheme}: accessible, not too wide, nothing from other servers`, async () => {
      const context = await newContext(width, scheme);
      await check(context, path);
      await context.close();
    });
  }
}

test('every page at 360 px: accessible, not too wide, nothing from other servers', async () => {
  const names = readdirSync(SITE, { recursive: true }).filter((name) => name.endsWith('index.html'));
  assert.ok(names.length > 40, `${names.length} pages`);
  const context = await newContext(360, 'light');
  const checkNext = async () => {
    for (let name; (name = names.pop());) await check(context, name.replace(/index\.html$/, ''), 'load');
  };
  await Promise.all([checkNext(), checkNext(), checkNext()]);
  await context.close();
});

test('blocks of code have the name of their file or heading', async () => {
  const context = await newContext(1280, 'light');
  const { tab } = await open(context, 'guides/slurm/');
  const names = await tab.locator('.md-code__nav').evaluateAll((parts) => parts.map((part) => part.getAttribute('aria-label')));
  assert.ok(names.includes('Code: train.sbatch') && names.includes('Code: 3. Check the next run'), `${names}`);
  assert.equal(new Set(names).size, names.length, `${names}`);
  await context.close();
});

test('search finds a guide, and blocks of code have a button to copy them', async () => {
  const context = await newContext(1280, 'light');
  const { tab, elsewhere } = await open(context, 'guides/slurm/');
  await tab.locator('.md-code__button[data-md-type="copy"]').first().waitFor();
  await tab.locator('.md-search__input').click();
  await tab.keyboard.type('slurm');
  await tab.locator('.md-search-result__link', { hasText: 'Right-size a Slurm job' }).first().waitFor();
  assert.deepEqual(elsewhere, []);
  await context.close();
});
