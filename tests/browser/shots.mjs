// Screenshots: `node shots.mjs FOLDER`. `node shots.mjs docs` writes the images of the documentation to docs/images.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { launch, page } from './pages.mjs';
import { odd, small, training } from './recordings.mjs';

const kept = process.argv[2] === 'docs';
const folder = kept ? fileURLToPath(new URL('../../docs/images', import.meta.url)) : process.argv[2] ?? 'shots';
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch(launch);

async function shoot(name, { url }, width, colorScheme, prepare = async () => ({ fullPage: true })) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
  const tab = await context.newPage();
  await tab.goto(url);
  const options = await prepare(tab);
  await tab.screenshot({ path: join(folder, `${name}.png`), ...options });
  await context.close();
}

/** Charts with the cursor at a share of their width. */
const pointed = (share) => async (tab) => {
  await tab.locator('#series').evaluate((heading) => heading.scrollIntoView());
  const box = await tab.locator('#chart-cpu .area').boundingBox();
  await tab.mouse.move(box.x + box.width * share, box.y + box.height * 0.4);
  return {};
};

const run = page(training());
if (kept) {
  await shoot('report-light', run, 1280, 'light', async () => ({}));
  await shoot('report-dark-charts', run, 1280, 'dark', pointed(0.42));
} else {
  for (const width of [360, 1280, 2560]) {
    for (const scheme of ['light', 'dark']) await shoot(`training-${width}-${scheme}`, run, width, scheme);
  }
  await shoot('charts-2560', run, 2560, 'light', pointed(0.42));
  for (const [name, make] of Object.entries({ small, ...odd })) await shoot(name, page(make()), 1280, 'light');
}
await browser.close();
