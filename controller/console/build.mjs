// Builds dist/, which is committed so that cargo alone builds the binary: `npm ci --ignore-scripts && npm run build`.
// With an argument it builds there, for the test that compares.

import { build } from 'esbuild';
import { copyFile, mkdir, readFile } from 'node:fs/promises';

const out = process.argv[2] ?? 'dist';
const licences = await Promise.all(
  ['preact', 'uplot'].map(async (name) => `${name}\n\n${await readFile(`node_modules/${name}/LICENSE`, 'utf8')}`),
);
const text = `The console of Plimsoll, Apache-2.0, built from controller/console/src. It contains:\n\n${licences.join('\n')}`;
const banner = `/*!\n${text.replaceAll('*/', '* /').trimEnd()}\n*/`;

await mkdir(out, { recursive: true });
await build({
  entryPoints: { app: 'src/main.tsx', style: 'src/style.css' },
  outdir: out,
  bundle: true,
  minify: true,
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  banner: { js: banner, css: banner },
});
for (const file of ['index.html', 'icon.svg']) {
  await copyFile(`src/${file}`, `${out}/${file}`);
}
