/* What the native engine takes, refuses and ignores: one row per rule, bytes on the wire in. */
#include "h2_script.h"

struct row {
    const char *source; /* RFC 9113 section, or where the rule comes from */
    const char *name;
    enum h2_role role;
    const char *script;
    const char *wants; /* what watch_say wrote, to the letter */
    bool answer;
    bool hold;
};

#define S         H2_SERVER
#define C         H2_CLIENT
#define BAD(code) "-goaway " code "; "

static const struct row rows[] = {
    /* ---- preface, frame heads ---- */
    {"3.4", "no preface", S, "! SETTINGS.0.0.", BAD("PROTOCOL_ERROR"), 0, 0},
    {"3.4", "first frame is no SETTINGS", C, "! PING.0.0.#8", BAD("PROTOCOL_ERROR"), 0, 0},
    {"3.4", "first frame is an ACK", C, "! SETTINGS.1.0.", BAD("PROTOCOL_ERROR"), 0, 0},
    {"4.2", "frame over the limit", S, "HEADERS.4.1.#16385", BAD("FRAME_SIZE_ERROR"), 0, 0},
    {"4.2", "unknown frame over the limit", S, "fe.0.1.#16385", BAD("FRAME_SIZE_ERROR"), 0, 0},
    {"4.1", "unknown frame is ignored", S, "fe.ff.7.#300 HEADERS.5.1.@req", "request 1 4 end; ", 0,
     0},
    {"4.1", "reserved bit is ignored", S, "HEADERS.5.2147483649.@req", "request 1 4 end; ", 0, 0},
    {"6.1", "DATA on stream 0", S, "DATA.0.0.00", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.2", "HEADERS on stream 0", S, "HEADERS.5.0.@req", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.3", "PRIORITY on stream 0", S, "PRIORITY.0.0.#5", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.3", "PRIORITY of 4 bytes", S, "PRIORITY.0.1.#4", BAD("FRAME_SIZE_ERROR"), 0, 0},
    {"6.3", "PRIORITY is ignored, also on an idle stream", S, "PRIORITY.0.9.#5 HEADERS.5.1.@req",
     "request 1 4 end; ", 0, 0},
    {"6.4", "RST_STREAM on stream 0", S, "RST_STREAM.0.0.#4", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.4", "RST_STREAM of 3 bytes", S, "HEADERS.5.1.@req RST_STREAM.0.1.#3",
     "request 1 4 end; " BAD("FRAME_SIZE_ERROR"), 0, 0},
    {"6.7", "PING on a stream", S, "PING.0.1.#8", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.7", "PING of 6 bytes", S, "PING.0.0.#6", BAD("FRAME_SIZE_ERROR"), 0, 0},
    {"6.8", "GOAWAY on a stream", S, "GOAWAY.0.1.#8", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.8", "GOAWAY of 7 bytes", S, "GOAWAY.0.0.#7", BAD("FRAME_SIZE_ERROR"), 0, 0},
    {"6.9", "WINDOW_UPDATE of 3 bytes", S, "WINDOW_UPDATE.0.0.#3", BAD("FRAME_SIZE_ERROR"), 0, 0},
    {"6.6", "PUSH_PROMISE from a client", S, "PUSH.4.1.00000002", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.6", "PUSH_PROMISE though push is off", C, "PUSH.4.1.00000002,@req", BAD("PROTOCOL_ERROR"),
     0, 0},
    /* ---- SETTINGS ---- */
    {"6.5", "SETTINGS on a stream", S, "SETTINGS.0.1.", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.5", "SETTINGS of 5 bytes", S, "SETTINGS.0.0.#5", BAD("FRAME_SIZE_ERROR"), 0, 0},
    {"6.5", "ACK with a payload", S, "SETTINGS.1.0.#6", BAD("FRAME_SIZE_ERROR"), 0, 0},
    {"6.5.3", "ACK of nothing", S, "SETTINGS.1.0. SETTINGS.1.0.", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.5.2", "ENABLE_PUSH 2", S, "SETTINGS.0.0.000200000002", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.5.2", "ENABLE_PUSH 1 from a server", C, "SETTINGS.0.0.000200000001", BAD("PROTOCOL_ERROR"),
     0, 0},
    {"6.5.2", "INITIAL_WINDOW_SIZE 2^31", S, "SETTINGS.0.0.000480000000", BAD("FLOW_CONTROL_ERROR"),
     0, 0},
    {"6.5.2", "MAX_FRAME_SIZE 16383", S, "SETTINGS.0.0.000500003fff", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.5.2", "MAX_FRAME_SIZE 2^24", S, "SETTINGS.0.0.000501000000", BAD("PROTOCOL_ERROR"), 0, 0},
    {"RFC 8441 3", "ENABLE_CONNECT_PROTOCOL 2", S, "SETTINGS.0.0.000800000002",
     BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.5.2", "unknown setting is ignored", S, "SETTINGS.0.0.ffff12345678 HEADERS.5.1.@req",
     "request 1 4 end; ", 0, 0},
    {"case A10", "33 settings in a frame", S, "SETTINGS.0.0.#198", BAD("ENHANCE_YOUR_CALM"), 0, 0},
    /* ---- windows ---- */
    {"6.9", "zero on the connection", S, "WINDOW_UPDATE.0.0.00000000", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.9, case A3", "zero on a stream ends the connection", S,
     "HEADERS.5.1.@req WINDOW_UPDATE.0.1.00000000", "request 1 4 end; " BAD("PROTOCOL_ERROR"), 0,
     0},
    {"6.9, case A3", "zero on a stream that is closed", S,
     "HEADERS.5.1.@req | WINDOW_UPDATE.0.1.00000000",
     "request 1 4 end; close 1 NO_ERROR; " BAD("PROTOCOL_ERROR"), 1, 0},
    {"6.9.1", "connection window over 2^31-1", S, "WINDOW_UPDATE.0.0.7fffffff",
     BAD("FLOW_CONTROL_ERROR"), 0, 0},
    {"6.9.1", "stream window over 2^31-1", S, "HEADERS.4.1.@req WINDOW_UPDATE.0.1.7fffffff",
     "request 1 4; close 1 FLOW_CONTROL_ERROR; -rst 1 FLOW_CONTROL_ERROR; ", 0, 0},
    {"6.9.2", "SETTINGS lift a window over 2^31-1", S,
     "HEADERS.4.1.@req WINDOW_UPDATE.0.1.7fff0000 SETTINGS.0.0.00047fffffff",
     "request 1 4; " BAD("FLOW_CONTROL_ERROR"), 0, 0},
    {"5.1", "WINDOW_UPDATE on an idle stream", S, "WINDOW_UPDATE.0.1.00000001",
     BAD("PROTOCOL_ERROR"), 0, 0},
    {"5.1", "WINDOW_UPDATE on a closed stream", S,
     "HEADERS.5.1.@req | WINDOW_UPDATE.0.1.00000001 PING.1.0.0000000000000007",
     "request 1 4 end; close 1 NO_ERROR; pong 7; ", 1, 0},
    {"6.9.1", "DATA over the stream's window", S, "HEADERS.4.1.@req DATA.0.1.#16000~66", NULL, 0,
     1},
    /* ---- stream ids and states ---- */
    {"5.1.1", "even id from a client", S, "HEADERS.5.2.@req", BAD("PROTOCOL_ERROR"), 0, 0},
    {"5.1.1", "id below the last, never used", S, "HEADERS.5.5.@req HEADERS.5.3.@req",
     "request 5 4 end; " BAD("PROTOCOL_ERROR"), 0, 0},
    {"5.1", "DATA on an idle stream", S, "DATA.0.1.00", BAD("PROTOCOL_ERROR"), 0, 0},
    {"5.1", "RST_STREAM on an idle stream", S, "RST_STREAM.0.1.#4", BAD("PROTOCOL_ERROR"), 0, 0},
    {"5.1", "HEADERS on an idle stream of ours", C, "HEADERS.4.5.@resp", BAD("PROTOCOL_ERROR"), 0,
     0},
    {"5.1", "HEADERS on a stream of the server's", C, "HEADERS.4.2.@resp", BAD("PROTOCOL_ERROR"), 0,
     0},
    {"5.1", "DATA after END_STREAM", S, "HEADERS.5.1.@req DATA.0.1.00",
     "request 1 4 end; " BAD("STREAM_CLOSED"), 0, 0},
    {"5.1", "HEADERS after END_STREAM", S, "HEADERS.5.1.@req HEADERS.5.1.@trl",
     "request 1 4 end; " BAD("STREAM_CLOSED"), 0, 0},
    {"5.1", "DATA on a closed stream", S, "HEADERS.5.1.@req | DATA.0.1.00",
     "request 1 4 end; close 1 NO_ERROR; " BAD("STREAM_CLOSED"), 1, 0},
    {"5.1", "HEADERS on a closed stream", S, "HEADERS.5.1.@req | HEADERS.5.1.@req",
     "request 1 4 end; close 1 NO_ERROR; " BAD("STREAM_CLOSED"), 1, 0},
    {"5.1", "DATA after the peer's RST_STREAM", S,
     "HEADERS.4.1.@req RST_STREAM.0.1.00000008 DATA.0.1.00 DATA.0.1.00",
     "request 1 4; close 1 CANCEL peer; -rst 1 STREAM_CLOSED; ", 0, 0},
    {"5.1", "HEADERS after the peer's RST_STREAM", S,
     "HEADERS.4.1.@req RST_STREAM.0.1.00000008 HEADERS.5.1.@trl HEADERS.5.3.@req",
     "request 1 4; close 1 CANCEL peer; request 3 4 end; -rst 1 STREAM_CLOSED; ", 0, 0},
    {"5.1", "late frames on a stream that we reset are ignored", S,
     "HEADERS.4.1.@req+te=gzip DATA.0.1.#5 WINDOW_UPDATE.0.1.00000001 HEADERS.5.1.@trl "
     "RST_STREAM.0.1.00000008 HEADERS.5.3.@req",
     "request 3 4 end; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"5.1", "DATA after an RST_STREAM that crossed ours", S,
     "HEADERS.4.1.@req+te=gzip RST_STREAM.0.1.00000008 DATA.0.1.00",
     "-rst 1 PROTOCOL_ERROR; -rst 1 STREAM_CLOSED; ", 0, 0},
    {"5.1", "HEADERS after an RST_STREAM that crossed ours", S,
     "HEADERS.4.1.@req+te=gzip RST_STREAM.0.1.00000008 HEADERS.5.1.@trl HEADERS.5.3.@req",
     "request 3 4 end; -rst 1 PROTOCOL_ERROR; -rst 1 STREAM_CLOSED; ", 0, 0},
    {"5.1", "RST_STREAM is told with its code", S, "HEADERS.4.1.@req RST_STREAM.0.1.0000000b",
     "request 1 4; close 1 ENHANCE_YOUR_CALM peer; ", 0, 0},
    {"8.1", "DATA before HEADERS", C, "DATA.0.1.00", BAD("PROTOCOL_ERROR"), 0, 0},
    /* ---- header blocks ---- */
    {"6.10", "CONTINUATION alone", S, "CONT.4.1.@req", BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.10", "block of three frames", S, "HEADERS.1.1.8386 CONT.0.1.84 CONT.4.1.010178",
     "request 1 4 end; ", 0, 0},
    {"6.10", "block of byte by byte frames", S,
     "HEADERS.1.1. CONT.0.1.83 CONT.0.1.86 CONT.0.1.84 CONT.0.1.01 CONT.0.1.01 CONT.4.1.78",
     "request 1 4 end; ", 0, 0},
    {"6.10", "another frame inside a block", S, "HEADERS.1.1.8386 PING.0.0.#8",
     BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.10", "unknown frame inside a block", S, "HEADERS.1.1.8386 fe.0.1.", BAD("PROTOCOL_ERROR"),
     0, 0},
    {"6.10", "CONTINUATION of another stream", S, "HEADERS.1.1.8386 CONT.4.3.84",
     BAD("PROTOCOL_ERROR"), 0, 0},
    {"CVE-2024-28182", "empty CONTINUATIONs", S, "HEADERS.1.1.8386 CONT.0.1.~5",
     BAD("ENHANCE_YOUR_CALM"), 0, 0},
    {"CVE-2024-28182", "a block that has no end: bytes", S, "HEADERS.1.1.8386 CONT.0.1.#16000~9",
     BAD("ENHANCE_YOUR_CALM"), 0, 0},
    {"CVE-2024-28182", "a block that has no end: frames", S, "HEADERS.1.1.8386 CONT.0.1.00~2049",
     BAD("ENHANCE_YOUR_CALM"), 0, 0},
    {"6.2", "padded HEADERS with priority", S, "HEADERS.2d.1.03,0000000010,@req,#3",
     "request 1 4 end; ", 0, 0},
    {"6.2", "HEADERS: padding over the payload", S, "HEADERS.d.1.20,@req", BAD("PROTOCOL_ERROR"), 0,
     0},
    {"6.2", "HEADERS too short for its priority", S, "HEADERS.25.1.#4", BAD("FRAME_SIZE_ERROR"), 0,
     0},
    {"RFC 7540 5.3.1", "stream depends on itself", S, "HEADERS.25.1.0000000110,@req",
     BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.1", "padded DATA, and the credit of it", S, "HEADERS.4.1.@req DATA.9.1.05,aabb,#5",
     "request 1 4; data 1 2 end; ", 0, 0},
    {"6.1", "DATA that is padding only", S, "HEADERS.4.1.@req DATA.8.1.05,#5 DATA.1.1.",
     "request 1 4; data 1 0 end; ", 0, 0},
    {"6.1", "DATA: padding over the payload", S, "HEADERS.4.1.@req DATA.8.1.06,#5",
     "request 1 4; " BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.1", "DATA between 1xx and response: padding over the payload", C,
     "HEADERS.4.1.@none+:status=103 DATA.8.1.06,#5",
     "info 1 1; close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; " BAD("PROTOCOL_ERROR"), 0, 0},
    {"6.1", "DATA on a stream that we reset: padding over the payload", S,
     "HEADERS.4.1.@req+te=gzip DATA.8.1.05,#5 DATA.8.1.06,#5",
     "-rst 1 PROTOCOL_ERROR; " BAD("PROTOCOL_ERROR"), 0, 0},
    {"RFC 7541 2.3.3", "index out of range", S, "HEADERS.5.1.be", BAD("COMPRESSION_ERROR"), 0, 0},
    {"RFC 7541 6.1", "index zero", S, "HEADERS.5.1.80", BAD("COMPRESSION_ERROR"), 0, 0},
    {"RFC 7541 6.3", "size update over the setting", S, "HEADERS.5.1.3fe21f,@req",
     BAD("COMPRESSION_ERROR"), 0, 0},
    {"RFC 7541 4.2", "size update at the end of a block", S, "HEADERS.5.1.@req,20",
     BAD("COMPRESSION_ERROR"), 0, 0},
    {"RFC 7541 5.2", "string that the block cuts", S, "HEADERS.5.1.@req,00056162",
     BAD("COMPRESSION_ERROR"), 0, 0},
    {"4.3", "a refused block still moves the table", S,
     "HEADERS.5.1.@req+te=gzip,400178017a HEADERS.5.3.@req,be",
     "request 3 5 end; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    /* ---- messages ---- */
    {"8.3.1", "no :path", S, "HEADERS.5.1.8386,010178", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3.1", "no :method", S, "HEADERS.5.1.8684,010178", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3.1", "no authority", S, "HEADERS.5.1.838684", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3.1", "host stands for :authority", S, "HEADERS.5.1.838684,@none+host=x",
     "request 1 4 end; ", 0, 0},
    {"8.3.1", "empty :path", S, "HEADERS.5.1.8386,@none+:path=+:authority=x",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3.1", ":path without /", S, "HEADERS.5.1.8386,@none+:path=a+:authority=x",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3.1", "userinfo in :authority", S, "HEADERS.5.1.838684,@none+:authority=a@b",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"RFC 9110 6.5.1", "host in trailers", S, "HEADERS.4.1.@req HEADERS.5.1.@trl+host=x",
     "request 1 4; close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3", "two :path", S, "HEADERS.5.1.@req,84", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3", "pseudo field after a regular one", S, "HEADERS.5.1.838684,@none+a=b+:authority=x",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3", "unknown pseudo field", S, "HEADERS.5.1.@req+:x=y", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3", ":status in a request", S, "HEADERS.5.1.@req,88", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.1", "upper-case name", S, "HEADERS.5.1.@req+Ab=c", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.1", "empty name", S, "HEADERS.5.1.@req+=c", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.1", "space in a name", S, "HEADERS.5.1.@req+a%20b=c", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.1", "CR in a value", S, "HEADERS.5.1.@req+a=b%0d", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.1", "LF in a value", S, "HEADERS.5.1.@req+a=b%0ac", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.1", "NUL in a value", S, "HEADERS.5.1.@req+a=b%00c", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.1", "space before a value", S, "HEADERS.5.1.@req+a=%20b", "-rst 1 PROTOCOL_ERROR; ", 0,
     0},
    {"8.2.2", "connection", S, "HEADERS.5.1.@req+connection=close", "-rst 1 PROTOCOL_ERROR; ", 0,
     0},
    {"8.2.2", "keep-alive", S, "HEADERS.5.1.@req+keep-alive=1", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.2", "proxy-connection", S, "HEADERS.5.1.@req+proxy-connection=a",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.2", "transfer-encoding", S, "HEADERS.5.1.@req+transfer-encoding=chunked",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.2", "upgrade", S, "HEADERS.5.1.@req+upgrade=h2c", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.2", "te: gzip", S, "HEADERS.5.1.@req+te=gzip", "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.2.2", "te: trailers", S, "HEADERS.5.1.@req+te=trailers", "request 1 5 end; ", 0, 0},
    {"8.1.1", "content-length that DATA passes", S,
     "HEADERS.4.1.@req+content-length=1 DATA.0.1.0000",
     "request 1 5; close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1.1", "content-length that DATA misses", S,
     "HEADERS.4.1.@req+content-length=3 DATA.1.1.0000",
     "request 1 5; close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1.1", "content-length with END_STREAM on HEADERS", S, "HEADERS.5.1.@req+content-length=3",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1.1", "two content-length", S, "HEADERS.4.1.@req+content-length=3+content-length=3",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1.1", "content-length -1", S, "HEADERS.4.1.@req+content-length=-1",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1.1", "content-length 2^64", S, "HEADERS.4.1.@req+content-length=18446744073709551616",
     "-rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1", "trailers", S, "HEADERS.4.1.@req DATA.0.1.aa HEADERS.5.1.@trl",
     "request 1 4; data 1 1; trailers 1 1 end; ", 0, 0},
    {"8.1", "trailers without END_STREAM", S, "HEADERS.4.1.@req HEADERS.4.1.@trl",
     "request 1 4; close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1", "pseudo field in trailers", S, "HEADERS.4.1.@req HEADERS.5.1.84",
     "request 1 4; close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1", "1xx, response, trailers", C,
     "HEADERS.4.1.@none+:status=103 HEADERS.4.1.@resp DATA.0.1.aa HEADERS.5.1.@trl",
     "info 1 1; response 1 1; data 1 1; trailers 1 1 end; ", 0, 0},
    {"8.1", "1xx with END_STREAM", C, "HEADERS.5.1.@none+:status=103",
     "close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.6", ":status 101", C, "HEADERS.4.1.@none+:status=101",
     "close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3.2", "no :status", C, "HEADERS.4.1.@none+a=b",
     "close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.3.2", ":status 20x", C, "HEADERS.4.1.@none+:status=20x",
     "close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1", "DATA between 1xx and response", C, "HEADERS.4.1.@none+:status=103 DATA.0.1.00",
     "info 1 1; close 1 PROTOCOL_ERROR; -rst 1 PROTOCOL_ERROR; ", 0, 0},
    {"8.1", "trailers-only closes a request that had ended", C, "HEADERS.5.3.@resp",
     "response 3 1 end; close 3 NO_ERROR; ", 0, 0},
    {"case U7", "1xx without end", C, "HEADERS.4.1.@none+:status=103~33", NULL, 0, 0},
    /* ---- GOAWAY ---- */
    {"6.8", "streams above the last id are refused", C, "GOAWAY.0.0.0000000100000000",
     "goaway 1 NO_ERROR; close 3 REFUSED_STREAM peer; ", 0, 0},
    {"6.8", "GOAWAY may lower its last id", C,
     "GOAWAY.0.0.7fffffff00000000 GOAWAY.0.0.0000000300000000",
     "goaway 2147483647 NO_ERROR; goaway 3 NO_ERROR; ", 0, 0},
    {"6.8", "GOAWAY may not raise it", C,
     "GOAWAY.0.0.0000000100000000 | GOAWAY.0.0.0000000300000000",
     "goaway 1 NO_ERROR; close 3 REFUSED_STREAM peer; " BAD("PROTOCOL_ERROR"), 0, 0},
};

static void each_row_is_answered_to_the_letter(void **state)
{
    unsigned n_failed = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *r = &rows[i];
        struct script *s = script_new(r->role, r->script);

        for (size_t piece = 0; piece < 2; piece++) { /* whole, and byte by byte */
            struct watch *w = watch_new(&h2_engine_native, r->role, NULL, r->role == C ? 2 : 0);

            w->answer = r->answer;
            w->hold = r->hold;
            if (piece == 0) { /* frames in one read are told before anything leaves */
                watch_script(w, s, 0);
                if (r->wants != NULL && strcmp(w->text, r->wants) != 0) {
                    fprintf(stderr, "%s: %s (RFC 9113 %s)\n got: %s\nwant: %s\n", r->script,
                            r->name, r->source, w->text, r->wants);
                    n_failed++;
                }
            } else {
                watch_script(w, s, 1); /* no split breaks it: ASan and watch_free look */
            }
            watch_free(w);
        }
        script_free(s);
    }
    assert_int_equal(n_failed, 0);
}

/* ---- what takes more than a row ---- */

static struct watch *play(const char *text, const struct h2_limits *limits, bool answer, bool hold)
{
    struct script *s = script_new(H2_SERVER, text);
    struct watch *w = watch_new(&h2_engine_native, H2_SERVER, limits, 0);

    w->answer = answer;
    w->hold = hold;
    watch_script(w, s, 0);
    script_free(s);
    return w;
}

static bool ends_with(const struct watch *w, const char *what)
{
    const size_t have = strlen(w->text), len = strlen(what);

    return have >= len && strcmp(w->text + have - len, what) == 0;
}

/* RFC 9113 6.9.1: a stream that nobody consumes takes its window and no byte more. */
static void data_over_the_stream_window_resets_the_stream(void **state)
{
    struct h2_limits l;
    struct watch *w;

    (void)state;
    h2_limits_default(&l);
    l.stream_window = 100000;
    w = play("SETTINGS.1.0. HEADERS.4.1.@req DATA.0.1.#10000~10 DATA.1.1.00", &l, false, true);
    assert_int_equal(w->streams[0].bytes, 100000);
    assert_true(ends_with(w, "close 1 FLOW_CONTROL_ERROR; -rst 1 FLOW_CONTROL_ERROR; "));
    watch_free(w);
}

/* RFC 9113 6.9.1: what one stream may not have is not taken from the connection for ever. */
static void connection_credit_comes_back_for_every_byte(void **state)
{
    struct h2_limits l;
    struct watch *w;

    (void)state;
    h2_limits_default(&l);
    l.conn_window = 65535;
    /* a stream reset by us, one by the peer, padding, a stream that holds */
    w = play("HEADERS.4.1.@req+te=x DATA.0.1.#16000~10 | HEADERS.4.3.@req DATA.8.3.ff,#16255~10 | "
             "RST_STREAM.0.3.00000008 | DATA.0.3.#16000~10 | DATA.0.3.#16000~10",
             &l, false, true);
    assert_false(w->refused);
    assert_int_equal(w->n_rst, 2); /* stream 1, and once for DATA after RST_STREAM */
    assert_true(w->window_bytes[0] >= 30 * 16000 - 32768);
    watch_free(w);
}

static void data_over_the_connection_window_ends_it(void **state)
{
    struct h2_limits l;
    struct watch *w;

    (void)state;
    h2_limits_default(&l);
    l.conn_window = l.stream_window = 65535;
    l.max_frame_bytes = 100000;
    w = play("HEADERS.4.1.@req DATA.0.1.#65536", &l, false, true);
    assert_string_equal(w->text, "request 1 4; -goaway FLOW_CONTROL_ERROR; ");
    watch_free(w);
}

static void streams_over_the_limit_are_refused(void **state)
{
    struct h2_limits l;
    struct watch *w;

    (void)state;
    h2_limits_default(&l);
    l.max_concurrent_streams = 2;
    w = play("SETTINGS.1.0. HEADERS.4.1.@req~+3 HEADERS.4.7.@req", &l, false, false);
    assert_string_equal(w->text, "request 1 4; request 3 4; -rst 5 REFUSED_STREAM; "
                                 "-rst 7 REFUSED_STREAM; ");
    watch_free(w);
}

static void header_list_over_the_limit_resets_the_stream(void **state)
{
    struct h2_limits l;
    struct watch *w;

    (void)state;
    h2_limits_default(&l);
    l.max_header_bytes = 200;
    w = play("HEADERS.5.1.@req+a=0123456789+b=0123456789+c=0123456789 HEADERS.5.3.@req", &l, false,
             false);
    assert_string_equal(w->text, "request 3 4 end; -rst 1 ENHANCE_YOUR_CALM; ");
    watch_free(w);
}

/* case A8: one entry of 4,000 bytes named again and again. */
static void hpack_bomb_ends_the_connection(void **state)
{
    struct script *s = script_new(H2_SERVER, "HEADERS.1.1.@req");
    struct watch *w = watch_new(&h2_engine_native, H2_SERVER, NULL, 0);
    uint8_t head[9] = {0, 0, 0, 9, 4, 0, 0, 0, 1}, byte;
    const size_t at = s->len;

    (void)state;
    script_put(s, head, 9);
    script_put(s, "\x40\x01x\x7f\xa1\x1e", 6); /* insert x: 127 + 33 + 30 * 128 = 4000 bytes */
    for (int i = 0; i < 4000; i++)
        script_put(s, "v", 1);
    byte = 0xbe;
    for (int i = 0; i < 10000; i++)
        script_put(s, &byte, 1);
    s->bytes[at + 1] = (uint8_t)((s->len - at - 9) >> 8);
    s->bytes[at + 2] = (uint8_t)(s->len - at - 9);
    s->ends[0] = s->len;
    watch_script(w, s, 0);
    assert_string_equal(w->text, "-goaway ENHANCE_YOUR_CALM; ");
    script_free(s);
    watch_free(w);
}

struct flood {
    const char *source, *script;
    bool answer;
    bool survives;
};

static void floods_end_and_honest_traffic_does_not(void **state)
{
    static const struct flood floods[] = {
        {"CVE-2019-9512 PING, not read", "PING.0.0.#8~2000", 0, 0},
        {"CVE-2019-9515 SETTINGS", "SETTINGS.0.0.~300", 0, 0},
        {"CVE-2019-9518 empty DATA", "HEADERS.4.1.@req DATA.0.1.~1100", 0, 0},
        {"PRIORITY", "PRIORITY.0.9.#5~3000", 0, 0},
        {"unknown frames", "fe.0.0.~3000", 0, 0},
        {"WINDOW_UPDATE that moves nothing", "WINDOW_UPDATE.0.0.00000001~3000", 0, 0},
        {"RST_STREAM on closed streams", "HEADERS.4.1.@req RST_STREAM.0.1.00000008~1100", 0, 0},
        {"CVE-2023-44487 rapid reset", "rapid", 0, 0},
        {"CVE-2025-8671 made you reset", "made", 0, 0},
        {"answered calls pay for their resets", "honest", 1, 1},
        {"a PING per call", "pings", 1, 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(floods); i++) {
        const struct flood *f = &floods[i];
        struct watch *w = watch_new(&h2_engine_native, H2_SERVER, NULL, 0);
        const bool per_stream = strchr(f->script, '.') == NULL;
        struct script *s = script_new(H2_SERVER, per_stream ? "" : f->script);

        w->answer = f->answer;
        watch_script(w, s, 0);
        for (uint32_t id = 1; per_stream && id < 4000 && !w->refused; id += 2) {
            char text[200];
            struct script *one;
            const size_t mark = strlen(w->text);

            if (f->script[0] == 'r')
                snprintf(text, sizeof(text), "! HEADERS.4.%u.@req RST_STREAM.0.%u.00000008", id,
                         id);
            else if (f->script[0] == 'm')
                snprintf(text, sizeof(text), "! HEADERS.4.%u.@req WINDOW_UPDATE.0.%u.7fffffff", id,
                         id);
            else if (f->script[0] == 'h')
                snprintf(text, sizeof(text),
                         "! HEADERS.5.%u.@req | HEADERS.4.%u.@req "
                         "RST_STREAM.0.%u.00000008",
                         id, id + 2, id + 2);
            else
                snprintf(text, sizeof(text), "! HEADERS.5.%u.@req PING.0.0.#8", id);
            if (f->script[0] == 'h')
                id += 2;
            one = script_new(H2_SERVER, text);
            watch_script(w, one, 0);
            script_free(one);
            if (!w->refused)
                w->text[mark] = '\0';
        }
        if (w->refused == f->survives)
            fail_msg("%s: %s", f->source, w->text);
        if (!f->survives)
            assert_true(ends_with(w, "-goaway ENHANCE_YOUR_CALM; "));
        assert_true(w->n_streams <= 1100 || f->survives);
        script_free(s);
        watch_free(w);
    }
}

/* RFC 9113 6.9.2: SETTINGS shrink a window below zero; it grows again, and the rest leaves. */
static void negative_window_holds_data_until_it_is_positive(void **state)
{
    struct watch *w = watch_new(&h2_engine_native, H2_CLIENT, NULL, 0);
    static const char *const steps[] = {"! SETTINGS.0.0.000400000064",   /* 100: 65,435 below */
                                        "! WINDOW_UPDATE.0.1.0000ff9b",  /* + 65,435: zero */
                                        "! WINDOW_UPDATE.0.1.00000005"}; /* five bytes */
    static const size_t queued[] = {34465, 34465, 34460};
    static uint8_t payload[100000];
    struct h2_stream *s;

    (void)state;
    s = h2_open(w->h, watch_request, ARRAY_LEN(watch_request), false, NULL);
    watch_stream_new(w, s);
    h2_send_data(s, NULL, payload, sizeof(payload), true);
    watch_flush(w);
    assert_int_equal(h2_stream_queued(s), 34465);
    for (size_t i = 0; i < 3; i++) {
        struct script *one = script_new(H2_CLIENT, steps[i] + (i == 0 ? 1 : 0));

        watch_script(w, one, 0);
        assert_false(w->refused);
        if (i == 0) { /* the connection's window must not be what holds it */
            struct script *conn = script_new(H2_CLIENT, "! WINDOW_UPDATE.0.0.00100000");

            watch_script(w, conn, 0);
            script_free(conn);
        }
        assert_int_equal(h2_stream_queued(s), queued[i]);
        script_free(one);
    }
    watch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_is_answered_to_the_letter),
        cmocka_unit_test(data_over_the_stream_window_resets_the_stream),
        cmocka_unit_test(connection_credit_comes_back_for_every_byte),
        cmocka_unit_test(data_over_the_connection_window_ends_it),
        cmocka_unit_test(streams_over_the_limit_are_refused),
        cmocka_unit_test(header_list_over_the_limit_resets_the_stream),
        cmocka_unit_test(hpack_bomb_ends_the_connection),
        cmocka_unit_test(floods_end_and_honest_traffic_does_not),
        cmocka_unit_test(negative_window_holds_data_until_it_is_positive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
