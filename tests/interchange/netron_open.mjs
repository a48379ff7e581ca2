// Opens files with the readers of netron and looks at everything that its page would show.
//
//   node netron_open.mjs NETRON FILE...
//
// NETRON: the folder with netron's scripts. Prints "FILE: FORMAT, N nodes, N values" or "FILE: error: ..." for each file.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, ...files] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(path.resolve(folder, name)).href);
const noElement = () => ({ style: {}, classList: { add() {}, remove() {} }, appendChild() {}, setAttribute() {}, addEventListener() {} });
globalThis.document = { createElement: noElement, createElementNS: noElement, documentElement: noElement(), body: noElement() };
const base = await load('base.js');
const view = await load('view.js');

// The part of netron's host that readers use.
const host = {
    event() {},
    exception(error) { throw error; },
    require: (id) => load(`${id}.js`),
    asset: async (file) => fs.readFileSync(path.join(folder, file), 'utf-8'),
    environment: () => null
};

class File {
    constructor(file) {
        this.identifier = path.basename(file);
        this.stream = new base.BinaryStream(new Uint8Array(fs.readFileSync(file)));
        this.entries = new Map();
        this.folder = path.dirname(file);
    }
    require(id) { return host.require(id); }
    asset(file) { return host.asset(file); }
    async fetch(file) { return new base.BinaryStream(new Uint8Array(fs.readFileSync(path.join(this.folder, file)))); }
    error(error) { throw error; }
}

// Reads what the page shows of a value: its name and type, and the elements of a constant.
function look(value) {
    String(value.name);
    String(value.type);
    const tensor = value.initializer;
    if (tensor) {
        String(tensor.type);
        const known = new base.Tensor(tensor);
        if (!known.empty) known.toString();
    }
    return 1;
}

for (const file of files) {
    try {
        const service = new view.ModelFactoryService(host);
        const model = await service.open(new File(file));
        let nodes = 0;
        let values = 0;
        for (const graph of model.modules) {
            for (const argument of [...graph.inputs, ...graph.outputs]) values += (argument.value || []).map(look).length;
            for (const node of graph.nodes) {
                nodes += 1;
                String(node.type.name);
                for (const argument of [...(node.inputs || []), ...(node.outputs || [])])
                    if (Array.isArray(argument.value)) values += argument.value.filter((v) => v && v.name !== undefined).map(look).length;
                for (const attribute of node.attributes || []) String(attribute.name) + String(attribute.value);
            }
        }
        console.log(`${file}: ${model.format}, ${nodes} nodes, ${values} values`);
    } catch (error) {
        console.log(`${file}: error: ${String(error.message).split('\n')[0]}`);
        process.exitCode = 1;
    }
}
