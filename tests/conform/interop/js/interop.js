// The gRPC project's interoperability cases with @grpc/grpc-js, client and server; usage and output as of ../interop_py.py.
'use strict';
const fs = require('fs');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const PROTO = '/usr/share/grpc-proto';
const definition = loader.loadSync('grpc/testing/test.proto', {includeDirs: [PROTO], keepCase: true, defaults: true});
const testing = grpc.loadPackageDefinition(definition).grpc.testing;
const UP = [27182, 8, 1828, 45904], DOWN = [31415, 9, 2653, 58979];
const ECHO = 'x-grpc-test-echo-initial', ECHO_BIN = 'x-grpc-test-echo-trailing-bin';
const SPECIAL = '\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \u{1f608}\t\n';
const OPTIONS = {'grpc.max_receive_message_length': -1, 'grpc.enable_http_proxy': 0};
const sum = list => list.reduce((a, b) => a + b, 0);

// ---- server ----

function trailersOf(call) {
  const initial = call.metadata.get(ECHO), trailing = new grpc.Metadata();
  if (initial.length) {
    const m = new grpc.Metadata();
    m.set(ECHO, initial[0]);
    call.sendMetadata(m);
  }
  for (const v of call.metadata.get(ECHO_BIN)) trailing.add(ECHO_BIN, v);
  return trailing;
}

async function sendAll(call, request) {
  for (const p of request.response_parameters) {
    if (p.interval_us) await new Promise(done => setTimeout(done, p.interval_us / 1000));
    if (!call.write({payload: {body: Buffer.alloc(p.size)}})) await new Promise(done => call.once('drain', done));
  }
}

const implementation = {
  EmptyCall: (call, callback) => callback(null, {}, trailersOf(call)),
  UnaryCall(call, callback) {
    const trailers = trailersOf(call), status = call.request.response_status;
    if (status && status.code) callback({code: status.code, details: status.message}, null, trailers);
    else callback(null, {payload: {body: Buffer.alloc(call.request.response_size)}}, trailers);
  },
  StreamingInputCall(call, callback) {
    let n = 0;
    const trailers = trailersOf(call);
    call.on('data', r => { n += r.payload.body.length; });
    call.on('end', () => callback(null, {aggregated_payload_size: n}, trailers));
  },
  async StreamingOutputCall(call) {
    await sendAll(call, call.request);
    call.end();
  },
  FullDuplexCall(call) {
    const trailers = trailersOf(call);
    let answered = Promise.resolve();
    call.on('data', r => {
      answered = answered.then(() => {
        if (!r.response_status || !r.response_status.code) return sendAll(call, r);
        call.emit('error', {code: r.response_status.code, details: r.response_status.message, metadata: trailers});
      });
    });
    call.on('end', () => answered.then(() => call.end(trailers)));
    call.on('error', () => {}); // cancelled
  },
};

function serve(args) {
  const server = new grpc.Server(OPTIONS);
  const {UnimplementedCall, ...methods} = testing.TestService.service;
  server.addService(methods, implementation);
  const credentials = args.cert
    ? grpc.ServerCredentials.createSsl(null, [{private_key: fs.readFileSync(args.key), cert_chain: fs.readFileSync(args.cert)}])
    : grpc.ServerCredentials.createInsecure();
  server.bindAsync(args.listen, credentials, (error, port) => {
    if (error) throw error;
    console.log(`listening grpc ${args.listen.replace(/:\d+$/, '')}:${port}\nready`);
  });
}

// ---- client ----

function must(got, want) {
  if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error(`${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
}

const deadline = ms => ({deadline: Date.now() + ms});
const large = () => ({response_size: 314159, payload: {body: Buffer.alloc(271828)}});
const ask = (down, up) => ({response_parameters: down.map(size => ({size})), payload: {body: Buffer.alloc(up || 0)}});

// A call to its end: {code, details, response, initial, trailing}; an error is an end like another.
function unary(client, name, request, metadata) {
  return new Promise(done => {
    const out = {};
    const call = client[name](request, metadata || new grpc.Metadata(), deadline(20000), (error, response) => { out.response = response; });
    call.on('metadata', m => { out.initial = m; });
    call.on('status', s => done({...out, code: s.code, details: s.details, trailing: s.metadata}));
  });
}

// A stream of answers to its end; each(size, call) sees them as they come.
function sizes(call, each) {
  return new Promise(done => {
    const out = {sizes: []};
    call.on('data', r => { out.sizes.push(r.payload.body.length); if (each) each(out.sizes.length); });
    call.on('metadata', m => { out.initial = m; });
    call.on('error', () => {});
    call.on('status', s => done({...out, code: s.code, details: s.details, trailing: s.metadata}));
  });
}

async function statusComes(c, message, both) {
  const response_status = {code: 2, message};
  const r = await unary(c, 'UnaryCall', {response_status});
  must([r.code, r.details], [2, message]);
  if (!both) return;
  const call = c.FullDuplexCall(deadline(20000)), all = sizes(call);
  call.write({response_status});
  call.end();
  const d = await all;
  must([d.code, d.details], [2, message]);
}

const cases = {
  async empty_unary(c) { must((await unary(c, 'EmptyCall', {})).code, 0); },
  async large_unary(c) {
    const r = await unary(c, 'UnaryCall', large());
    must([r.code, r.response && r.response.payload.body.length], [0, 314159]);
  },
  async client_streaming(c) {
    const n = await new Promise((done, fail) => {
      const call = c.StreamingInputCall(new grpc.Metadata(), deadline(20000), (e, r) => e ? fail(e) : done(r.aggregated_payload_size));
      for (const size of UP) call.write({payload: {body: Buffer.alloc(size)}});
      call.end();
    });
    must(n, sum(UP));
  },
  async server_streaming(c) {
    const r = await sizes(c.StreamingOutputCall(ask(DOWN), deadline(20000)));
    must([r.code, r.sizes], [0, DOWN]);
  },
  async ping_pong(c) {
    const call = c.FullDuplexCall(deadline(20000));
    const next = i => i < UP.length ? call.write(ask([DOWN[i]], UP[i])) : call.end();
    const all = sizes(call, next);
    next(0);
    const r = await all;
    must([r.code, r.sizes], [0, DOWN]);
  },
  async empty_stream(c) {
    const call = c.FullDuplexCall(deadline(20000)), all = sizes(call);
    call.end();
    const r = await all;
    must([r.code, r.sizes], [0, []]);
  },
  async timeout_on_sleeping_server(c) {
    const call = c.FullDuplexCall(deadline(1)), all = sizes(call);
    call.write(ask([], 27182));
    must((await all).code, grpc.status.DEADLINE_EXCEEDED);
  },
  async cancel_after_begin(c) {
    const code = await new Promise(done => {
      const call = c.StreamingInputCall(new grpc.Metadata(), deadline(20000), () => {});
      call.on('status', s => done(s.code));
      setImmediate(() => call.cancel());
    });
    must(code, grpc.status.CANCELLED);
  },
  async cancel_after_first_response(c) {
    const call = c.FullDuplexCall(deadline(20000));
    const all = sizes(call, () => call.cancel());
    call.write(ask([31415], 27182));
    const r = await all;
    must([r.code, r.sizes], [grpc.status.CANCELLED, [31415]]);
  },
  status_code_and_message: c => statusComes(c, 'test status message', true),
  special_status_message: c => statusComes(c, SPECIAL, false),
  async custom_metadata(c) {
    const m = new grpc.Metadata();
    m.set(ECHO, 'test_initial_metadata_value');
    m.set(ECHO_BIN, Buffer.from([0xab, 0xab, 0xab]));
    const call = c.FullDuplexCall(m, deadline(20000)), all = sizes(call);
    call.write(ask([314159], 271828));
    call.end();
    for (const r of [await unary(c, 'UnaryCall', large(), m), await all]) {
      must([r.code, r.initial.get(ECHO)], [0, ['test_initial_metadata_value']]);
      must(r.trailing.get(ECHO_BIN).map(b => b.toString('hex')), ['ababab']);
    }
  },
  async unimplemented_method(c) { must((await unary(c, 'UnimplementedCall', {})).code, grpc.status.UNIMPLEMENTED); },
  async unimplemented_service(c, args) {
    const other = new testing.UnimplementedService(args.address, credentialsOf(args), optionsOf(args));
    must((await unary(other, 'UnimplementedCall', {})).code, grpc.status.UNIMPLEMENTED);
    other.close();
  },
  async rpc_soak(c, args) {
    let left = Number(args.soak || 200);
    const one = async () => { while (left-- > 0) await cases.large_unary(c); };
    await Promise.all(Array.from({length: Number(args.threads || 4)}, one));
  },
};

const credentialsOf = args => args.ca ? grpc.credentials.createSsl(fs.readFileSync(args.ca)) : grpc.credentials.createInsecure();
const optionsOf = args => args.ca ? {...OPTIONS, 'grpc.ssl_target_name_override': 'localhost'} : OPTIONS;

async function run(args) {
  const client = new testing.TestService(args.address, credentialsOf(args), optionsOf(args));
  let bad = 0;
  for (const name of args.cases.split(',')) {
    try {
      await cases[name](client, args);
      console.log('ok', name);
    } catch (e) {
      bad++;
      console.log('bad', name, String(e).slice(0, 500).replace(/\n/g, ' '));
    }
  }
  client.close();
  process.exit(bad ? 1 : 0);
}

const [role, ...rest] = process.argv.slice(2), args = {};
for (let i = 0; i < rest.length; i += 2) args[rest[i].slice(1)] = rest[i + 1];
if (role === 'server') serve(args);
else run(args);
