// What: /tokenize and /detokenize.
// Owner: Api.
// Thread: handlers on the I/O thread, work on Intake's.
// Invariant: detokenized text is always valid UTF-8, cut characters as U+FFFD; texts, id lists and batches are bounded
// as prompts are.
// Fields are listed in docs/api.md.
#pragma once

#include "serve/intake.h"
#include "serve/model_context.h"
#include "serve/router.h"

namespace simdjson::dom {
class object;
}

namespace levada::serve {

class TextRoutes {
 public:
  TextRoutes(const ModelContext& model, Intake& intake) : model_(model), intake_(intake) {}

  void register_on(Router& router);

 private:
  using Work = Result<std::string> (*)(const ModelContext&, simdjson::dom::object);
  void add(Router& router, const char* path, Work work);

  const ModelContext& model_;
  Intake& intake_;
};

// The answer's body for a request body; for the route and its tests.
Result<std::string> tokenize(const ModelContext& model, simdjson::dom::object body);
Result<std::string> detokenize(const ModelContext& model, simdjson::dom::object body);

}  // namespace levada::serve
