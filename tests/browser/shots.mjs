// Screenshots to look at: `node shots.mjs FOLDER`. Three of them are kept in docs/images.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { launch, page } from './pages.mjs';
import { odd, small, training } from './recordings.mjs';

const folder = process.argv[2] ?? 'shots';
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch(launch);
const pages = { training: page(training()), small: page(small()), ...(process.argv[3] ? Object.fromEntries(Object.entries(odd).map(([name, make]) => [name, page(make())])) : {}) };
for (const [name, { url }] of Object.entries(pages)) {
  for (const width of name === 'training' ? [360, 1280, 2560] : [1280]) {
    for (const colorScheme of name === 'training' ? ['light', 'dark'] : ['light']) {
      const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
      const tab = await context.newPage();
      await tab.goto(url);
      await tab.screenshot({ path: join(folder, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      await context.close();
    }
  }
}
await browser.close();
