import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { Sha256, sha256OfBlob } from '../src/sha256.js';

test('the published vectors', () => {
  const of = (text: string): string => new Sha256().update(new TextEncoder().encode(text)).hex();
  expect(of('')).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
  expect(of('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  expect(of('abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq')).toBe(
    '248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1',
  );
});

test('any length in any pieces is what node computes', () => {
  const bytes = Uint8Array.from({ length: 1000 }, (_, i) => (i * 7919) % 251);
  for (const length of [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 1000]) {
    const expected = createHash('sha256').update(bytes.subarray(0, length)).digest('hex');
    for (const piece of [1, 13, 64, 100, 1000]) {
      const hash = new Sha256();
      for (let at = 0; at < length; at += piece) hash.update(bytes.subarray(at, Math.min(length, at + piece)));
      expect(hash.hex(), `${length} bytes in pieces of ${piece}`).toBe(expected);
    }
  }
});

test('a blob in several pieces', async () => {
  const bytes = new Uint8Array((9 << 20) + 5).fill(3);
  let heard = 0;
  const found = await sha256OfBlob(new Blob([bytes]), (count) => (heard += count));
  expect(found).toBe(createHash('sha256').update(bytes).digest('hex'));
  expect(heard).toBe(bytes.length);
});
