// Runs the script of a page of inspect-program, types words into its search box, and prints what the page then shows as
// the count. Has only the parts of a browser that the script uses: a script that needs more ends with an error.
//
//   node search_page.mjs PAGE WORDS

import fs from 'node:fs';
import vm from 'node:vm';

const [page, words] = process.argv.slice(2);
const text = fs.readFileSync(page, 'utf-8');
const script = /<script>([^]*?)<\/script>/.exec(text)[1];
const plain = (html) => html.replace(/<[^>]*>/g, '').replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&amp;/g, '&');
const classList = {toggle() {}};
const rows = [];
for (const body of text.matchAll(/<tbody>([^]*?)<\/tbody>/g)) {
  for (const row of body[1].matchAll(/<tr(?: data-row="([^"]*)")?>([^]*?)<\/tr>/g)) {
    rows.push({hidden: false, textContent: plain(row[2]), getAttribute: () => row[1] ?? null});
  }
}
const ops = [...text.matchAll(/<g [^>]*data-op="([^"]*)"/g)].map(
    (op) => ({classList, getAttribute: () => op[1], addEventListener() {}}));
const listeners = [];
const elements = {
  search: {value: '', addEventListener: (event, listener) => event === 'input' && listeners.push(listener)},
  count: {textContent: ''},
};
const lists = {'tbody tr': rows, 'g[data-op]': ops};
const document = {
  getElementById: (id) => elements[id],
  querySelectorAll: (selector) => {
    if (!(selector in lists)) throw new Error(`search_page.mjs has no selector ${selector}`);
    return lists[selector];
  },
};
vm.runInNewContext(script, {document, clearTimeout() {}, setTimeout: (call) => call()});
elements.search.value = words;
listeners.forEach((listener) => listener());
const shown = rows.filter((row) => !row.hidden).length;
const count = elements.count.textContent;
if (words !== '' && !count.startsWith(`${shown} of ${rows.length} `)) {
  throw new Error(`${shown} rows are shown, the page says: ${count}`);
}
if (words === '' && shown !== rows.length) {
  throw new Error(`${shown} of ${rows.length} rows are shown without a search`);
}
console.log(count);
