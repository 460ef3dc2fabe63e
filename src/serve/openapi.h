// What: the OpenAPI 3.1 document of this server, made of what the server itself is made of.
// Owner: Api.
// Thread: start-up.
// Invariant: its operations are the router's routes; the fields of a body are those its parser asks for, heard by a
// FieldWitness while it reads a small valid body. Nothing is listed by hand but the shapes of fields that are lists or
// objects.
// Format: https://spec.openapis.org/oas/v3.1.0
#pragma once

#include <string>
#include <vector>

#include "serve/model_context.h"
#include "serve/router.h"

namespace levada::serve {

std::string openapi_document(const ModelContext& model, const std::vector<Router::Declared>& routes,
                             const std::string& version);

}  // namespace levada::serve
