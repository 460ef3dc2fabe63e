// What: AnswerFormat, how one dialect phrases folds: SSE events and whole answers.
// Owner: the Call.
// Thread: the I/O thread.
// Invariant: everything appended is complete SSE events ("data: {…}\n\n"); [DONE] and errors are the Call's.
// Fixed parts of an event are built once per call: an event costs two copies and one escape of the new text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/answer_fold.h"
#include "serve/call_spec.h"

namespace levada::serve {

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // What precedes the member's first event; called once per member.
  virtual void append_opening(std::size_t member, std::string& out) = 0;
  // The events of one delta, which `fold` already includes; may be none.
  virtual void append_events(std::size_t member, const AnswerFold& fold, const core::OutputDelta& delta,
                             std::string& out) = 0;
  // What follows the last member's finish, before [DONE].
  virtual void append_closing(const std::vector<AnswerFold>& folds, std::string& out) = 0;
  virtual std::string whole(const std::vector<AnswerFold>& folds) = 0;
  // True if a member aborted by request is part of an answer rather than a failure.
  virtual bool answers_aborts() const = 0;
};

// `created_unix_s` is the answer's date.
std::unique_ptr<AnswerFormat> make_format(const CallSpec& call, std::int64_t created_unix_s);

std::unique_ptr<AnswerFormat> make_chat_format(const CallSpec& call, std::int64_t created_unix_s);
std::unique_ptr<AnswerFormat> make_completion_format(const CallSpec& call, std::int64_t created_unix_s);
std::unique_ptr<AnswerFormat> make_embedding_format(const CallSpec& call);
std::unique_ptr<AnswerFormat> make_generate_format(const CallSpec& call);
std::unique_ptr<AnswerFormat> make_responses_format(const CallSpec& call, std::int64_t created_unix_s);
std::unique_ptr<AnswerFormat> make_messages_format(const CallSpec& call);

}  // namespace levada::serve
