// Makes report pages from recordings with the command.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, writeFileSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';

/** The command. */
export const program = resolve(process.env.RESOURCE_TRACKER ?? fileURLToPath(new URL('../../target/release/resource-tracker', import.meta.url)));

/** Writes a recording and its report; returns the location and text of the report. */
export function page(recording) {
  const folder = mkdtempSync(join(tmpdir(), 'report-'));
  const [file, html] = [join(folder, 'recording.json.gz'), join(folder, 'page.html')];
  writeFileSync(file, gzipSync(JSON.stringify(recording), { level: 1 }));
  const env = { ...process.env, RESOURCE_TRACKER_OFFLINE: '1', XDG_DATA_HOME: folder, XDG_CACHE_HOME: folder, TZ: 'CET-1' };
  execFileSync(program, ['report', file, '-o', html], { env });
  return { url: pathToFileURL(html).href, html: readFileSync(html, 'utf8'), path: html };
}

/** Options to run Chromium in a container without network access. */
export const launch = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
};
