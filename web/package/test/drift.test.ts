/** What stands in two places by hand, held together: Rust and TypeScript, README and code. */
import { readFileSync, readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { CODES } from '../src/errors.js';

const read = (path: string): string => readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');

const rust = (name: string): string => read(`crates/redraft-wasm/src/${name}.rs`);
const wasm = read('web/package/src/wasm.ts');

/** What the braces hold that open first after `start`, and its fields that are in no inner braces. */
function block(source: string, start: number): string {
  const open = source.indexOf('{', start);
  let depth = 0;
  for (let at = open; at < source.length; at += 1) {
    if (source[at] === '{') depth += 1;
    if (source[at] === '}') depth -= 1;
    if (depth === 0) return source.slice(open + 1, at);
  }
  throw new Error('braces are left open');
}

function after(source: string, words: string): number {
  const at = source.indexOf(words);
  if (at < 0) throw new Error(`there is no ${words}`);
  return at;
}

/** The text without comments and without what stands in braces within. */
function outer(text: string): string {
  let depth = 0;
  const bare = text.replace(/\/\*[^]*?\*\/|\/\/.*/g, '');
  return [...bare].filter((letter) => {
    if (letter === '{') depth += 1;
    if (letter === '}') depth -= 1;
    return depth === 0;
  }).join('');
}

/** The fields of an interface, or with more names of what a field of it holds. */
function interfaceFields(name: string, ...inner: string[]): string[] {
  let text = block(wasm, after(wasm, `interface ${name} {`));
  for (const field of inner) text = block(text, after(text, `${field}`));
  return [...outer(text).matchAll(/readonly (\w+)\??:/g)].map(([, field = '']) => field).sort();
}

/** The fields of a struct, as serde writes them. */
function structFields(source: string, name: string): string[] {
  const at = after(source, `struct ${name} {`);
  const attributes = source.slice(source.lastIndexOf('\n\n', at), at);
  const camel = attributes.includes('rename_all = "camelCase"');
  const fields = [...outer(block(source, at)).matchAll(/^\s*(?:pub\(crate\) )?(\w+):/gm)].map(([, field = '']) => field);
  return fields.map((field) => (camel ? field.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()) : field)).sort();
}

const quoted = (text: string): string[] => [...text.matchAll(/["'](\w+)["']/g)].map(([, word = '']) => word).sort();

/** The texts that a type allows. */
function typeNames(name: string): string[] {
  const at = after(wasm, `type ${name} =`);
  return quoted(wasm.slice(at, wasm.indexOf(';', at)));
}

test('what the module tells has the fields that the types say', () => {
  const report = rust('report');
  const pairs: [string, string[]][] = [
    ['EngineReport', interfaceFields('ModuleInfo')],
    ['MemoryReport', interfaceFields('ModuleInfo', 'memory: ')],
    ['TokenReport', interfaceFields('TokenReport')],
    ['LogProbsReport', interfaceFields('TokenReport', 'logProbs?: ')],
    ['LogProbReport', interfaceFields('LogProbReport')],
    ['RoundReport', interfaceFields('RoundTree')],
    ['NodeReport', interfaceFields('TreeNode')],
    ['PlanReport', interfaceFields('Plan')],
    ['AnswerReport', interfaceFields('AnswerReport')],
    ['TimingsReport', interfaceFields('AnswerReport', 'timings: ')],
    ['SpeculationReport', interfaceFields('SpeculationReport')],
    ['RunReport', interfaceFields('SpeculationReport', 'history: ')],
  ];
  for (const [struct, fields] of pairs) {
    expect(fields.length, struct).toBeGreaterThan(1);
    expect(structFields(report, struct), struct).toEqual(fields);
  }
  // None is forgotten here.
  expect([...report.matchAll(/^(?:pub\(crate\) )?struct (\w+) \{/gm)].map(([, name]) => name).sort()).toEqual(pairs.map(([name]) => name).sort());
  expect(structFields(rust('costs'), 'CostsReport')).toEqual(interfaceFields('SpeculationCosts'));
});

test('what the module is asked has the fields that it reads', () => {
  const request = rust('request');
  expect(structFields(request, 'AnswerRequest')).toEqual(interfaceFields('AnswerRequest'));
  expect(structFields(request, 'SamplingRequest')).toEqual(interfaceFields('AnswerRequest', 'sampling?: '));
  expect(structFields(request, 'PlanRequest')).toEqual(interfaceFields('Plan'));
  const asked = /JSON\.stringify\(\{ (context, .*) \}\)/.exec(read('web/package/src/local.ts'))?.[1]?.split(', ') ?? [];
  expect(asked).toContain('precision');
  expect(structFields(request, 'LoadRequest')).toEqual(expect.arrayContaining(asked));
});

test('names of kinds are the same on both sides', () => {
  const [report, request] = [rust('report'), rust('request')];
  expect(quoted(block(report, after(report, 'fn origin(')))).toEqual(typeNames('TokenOrigin'));
  const modes = block(request, after(request, 'enum PlanMode {')).toLowerCase().match(/\w+/g)?.sort();
  expect(modes).toEqual(typeNames('PlanMode'));
  const gates = block(request, after(request, 'enum GateName {')).toLowerCase().match(/\w+/g)?.sort();
  expect(gates).toEqual(typeNames('Gate'));
  const plan = block(report, after(report, 'impl From<&Plan> for PlanReport'));
  expect(quoted(plan)).toEqual([...(modes ?? []), ...(gates ?? [])].sort());
  const paths = block(request, after(request, 'enum PathName {')).toLowerCase().match(/\w+/g)?.sort();
  const subgroups = read('web/package/src/subgroups.ts');
  expect(paths).toEqual(quoted(/type PathName = (.*);/.exec(subgroups)?.[1] ?? ''));
});

test('error codes: the module, the package and its README have the same', () => {
  const codes = Object.keys(CODES).sort();
  const source = rust('error');
  const ofModule = quoted(block(source, after(source, 'fn name(self)')));
  expect(ofModule.length).toBeGreaterThan(5);
  for (const code of ofModule) expect(codes).toContain(code);
  const readme = read('web/package/README.md');
  const table = readme.slice(after(readme, '| code | what it means |'), after(readme, 'Arguments are checked before'));
  const rows = [...table.matchAll(/^\| `(\w+)` \| (.{10,}) \|$/gm)].map(([, code = '']) => code);
  expect(rows.sort()).toEqual(codes);
});

test('no type is switched off', () => {
  const folders = ['package/src', 'package/test', 'tests', 'demo/src', 'bench'];
  const files = folders.flatMap((folder) => readdirSync(new URL(`../../${folder}`, import.meta.url)).filter((name) => name.endsWith('.ts')).map((name) => `web/${folder}/${name}`));
  expect(files.length).toBeGreaterThan(50);
  for (const file of files) {
    const text = read(file);
    // Words of comments are free, except those that the compiler heeds.
    const code = text.replace(/\/\*[^]*?\*\/|\/\/ .*/g, '');
    expect(/[:<,|&]\s*any\b|\bas any\b/.exec(code)?.[0], file).toBeUndefined();
    expect(/\/[/*] *@ts-\w+/.exec(text)?.[0], file).toBeUndefined();
  }
});
