// What: the HTTP bench behind `levada bench http`: what requests and streamed events cost, beside the least they could.
// Owner: none, a function.
// Thread: the caller's is the load (16 connections); each server has its own.
// Invariant: figures are processor time, because the load shares the machine's cores: of the I/O thread unless a case says
// otherwise. The servers take turns within one run, so their figures can be divided.
// Cases: epoll_hello, epoll_sse (per event, one write each), epoll_sse_turns (the
// streams in turn, as steps of a scheduler make them), epoll_sse_x8 (eight to a write): bare epoll; hello, sse, sse_x8: the
// same of http::Server; health: GET /health of the whole server. chat_first_token: a small chat of one streamed token, all
// threads of the server; chat_event: one more token of 16 streams, all threads; chat_event_io: the I/O thread's part of it.
#pragma once

#include <vector>

#include "base/status.h"
#include "bench/bench.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace levada::bench {

// `scale` multiplies the number of samples. kUnavailable if no loopback port can be had.
Result<std::vector<Case>> run_http_bench(double scale, const text::Tokenizer& tokenizer,
                                         const text::ChatTemplate& chat_template);

}  // namespace levada::bench
