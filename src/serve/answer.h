// What: Answer, one call's way from deltas to bytes: fold, phrase, fail or finish. Pure: it returns what the connection
// must do.
// Owner: LiveCalls.
// Thread: the I/O thread.
// Invariant: headers wait for the first delta, so a failure before it is a plain HTTP error; a failure after it is one
// error event and no [DONE] (B43); nothing is emitted after done().
//
//   waiting ──first delta of a stream──> streaming ──last member's finish: [DONE]──> done
//      └──last member's finish (whole) or any failure──> done <──any failure: error event──┘
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/answer_format.h"

namespace levada::serve {

struct Emission {
  int status = 0;       // not 0: send a status line first (whole answers and the start of a stream)
  bool stream = false;  // with a status: the start of a stream
  bool end = false;     // nothing follows
  std::string bytes;
  Status failure;                                    // not ok: bytes say so
  std::vector<std::vector<core::Token>> answer_ids;  // of every member, with the end, if the call wants them
};

class Answer {
 public:
  Answer(const CallSpec& call, std::int64_t created_unix_s);

  Emission on_delta(std::size_t member, const core::OutputDelta& delta, std::int64_t now_us);
  // The same for a failure that no delta carries, e.g. a refused rid.
  Emission on_failure(const Status& failure);
  bool done() const { return done_; }
  const AnswerFold& fold(std::size_t member) const { return folds_[member]; }

 private:
  bool fails(const core::Finish& finish) const;
  Emission phrase_delta(std::size_t member, const core::OutputDelta& delta);
  Emission stream_delta(std::size_t member, const core::OutputDelta& delta);

  std::unique_ptr<AnswerFormat> format_;
  std::vector<AnswerFold> folds_;
  std::vector<bool> opened_;
  std::vector<std::int64_t> arrivals_us_;
  std::size_t unfinished_;
  Dialect dialect_;
  bool stream_, wants_ids_;
  bool streaming_ = false;
  bool done_ = false;
};

}  // namespace levada::serve
