# levada_xgrammar: the grammar engine XGrammar (downloaded by scripts/setup.sh, pinned by hash), as a static library.
#
# The engine bounds neither the work nor the stack that a grammar may cost, and says on stderr what it leaves out of one. Its
# sources are therefore copied into the build folder with the edits below; each edit must find its place or configuring fails.
# Nothing of the engine is committed. XGRAMMAR_LOG_CUSTOMIZE hands its messages to src/grammar/engine_shim/engine_log.cc.
# clang-14 does not compile it: the build of scripts/fuzz.sh links the engine of the release build (LEVADA_XGRAMMAR_LIBRARY).
set(LEVADA_XGRAMMAR_LIBRARY "" CACHE FILEPATH "An engine built before, to be linked instead of building one")
set(xgrammar_root "${LEVADA_DEPS_DIR}/xgrammar")
set(xgrammar_from "${xgrammar_root}/cpp")
set(xgrammar_to "${CMAKE_BINARY_DIR}/xgrammar")
set(xgrammar_shim "${CMAKE_SOURCE_DIR}/src/grammar/engine_shim")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_FILE}")
if(NOT EXISTS "${xgrammar_from}/grammar_compiler.cc")
  message(FATAL_ERROR "the grammar engine is missing: run scripts/setup.sh (or `make build`)")
endif()
if(LEVADA_XGRAMMAR_LIBRARY)
  add_library(levada_xgrammar STATIC IMPORTED GLOBAL)
  set_target_properties(levada_xgrammar PROPERTIES IMPORTED_LOCATION "${LEVADA_XGRAMMAR_LIBRARY}")
  target_include_directories(levada_xgrammar SYSTEM INTERFACE
    "${xgrammar_root}/include" "${xgrammar_root}/3rdparty/dlpack/include" "${xgrammar_shim}")
  return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/EditedSource.cmake")

# --- Every state of the parser, every state and edge of an automaton, every expression of a grammar is a step.
edit_source(xgrammar support/logging.h [==[#include <ctime>]==] [==[#include <ctime>
#include "work_limit.h"]==])
edit_source(xgrammar earley_parser.h
  [==[    if (!IsStateVisitedInQueue(state)) {]==]
  [==[    levada::grammar::WorkLimit::step();
    if (!IsStateVisitedInQueue(state)) {]==])
edit_source(xgrammar earley_parser.cc
  [==[bool EarleyParser::Advance(const uint8_t ch, bool debug_print) {]==]
  [==[bool EarleyParser::Advance(const uint8_t ch, bool debug_print) {
  levada::grammar::WorkLimit::step();]==])
edit_source(xgrammar fsm.cc
  [==[  int AddState() {]==]
  [==[  int AddState() {
    levada::grammar::WorkLimit::step();]==])
edit_source(xgrammar fsm.cc
  [==[  void AddEdge(int from, int to, int32_t min, int32_t max) {]==]
  [==[  void AddEdge(int from, int to, int32_t min, int32_t max) {
    levada::grammar::WorkLimit::step();]==])
edit_source(xgrammar fsm.cc
  [==[    for (const auto& edge : edges_[current]) {]==]
  [==[    levada::grammar::WorkLimit::step();
    for (const auto& edge : edges_[current]) {]==])
edit_source(xgrammar grammar_builder.cc
  [==[int32_t GrammarBuilder::AddGrammarExpr(const GrammarExpr& grammar_expr) {]==]
  [==[int32_t GrammarBuilder::AddGrammarExpr(const GrammarExpr& grammar_expr) {
  levada::grammar::WorkLimit::step();]==])

# --- Recursions over nested schemas, groups and expressions.
edit_source(xgrammar grammar_functor.h
  [==[  virtual T VisitExpr(const GrammarExpr& grammar_expr) {]==]
  [==[  virtual T VisitExpr(const GrammarExpr& grammar_expr) {
    levada::grammar::WorkLimit::enter();]==])
edit_source(xgrammar grammar_functor.cc
  [==[  XGRAMMAR_DCHECK(start_state >= 0 && start_state < target_fsm_.NumStates());
  switch (expr.type) {]==]
  [==[  levada::grammar::WorkLimit::enter();
  switch (expr.type) {]==])
edit_source(xgrammar grammar_parser.cc
  [==[int32_t EBNFParser::ParseElement() {]==]
  [==[int32_t EBNFParser::ParseElement() {
  levada::grammar::WorkLimit::enter();]==])
edit_source(xgrammar json_schema_converter.cc
  [==[  std::string cache_key = ComputeCacheKey(schema);]==]
  [==[  levada::grammar::WorkLimit::enter();
  std::string cache_key = ComputeCacheKey(schema);]==])
edit_source(xgrammar json_schema_converter.cc
  [==[    const SchemaSpecPtr& spec, const std::string& rule_name_hint
) {
  return std::visit(]==]
  [==[    const SchemaSpecPtr& spec, const std::string& rule_name_hint
) {
  levada::grammar::WorkLimit::enter();
  return std::visit(]==])
edit_source(xgrammar fsm_builder.cc
  [==[Result<FSMWithStartEnd> RegexIR::visit(const RegexIR::Union& state) const {]==]
  [==[Result<FSMWithStartEnd> RegexIR::visit(const RegexIR::Union& state) const {
  levada::grammar::WorkLimit::enter();]==])
edit_source(xgrammar fsm_builder.cc
  [==[Result<FSMWithStartEnd> RegexIR::visit(const RegexIR::Symbol& state) const {]==]
  [==[Result<FSMWithStartEnd> RegexIR::visit(const RegexIR::Symbol& state) const {
  levada::grammar::WorkLimit::enter();]==])

# --- The masks of a grammar's states are most of its memory.
edit_source(xgrammar grammar_compiler.cc
  [==[    if (max_threads_ > 1) {
      std::lock_guard<std::mutex> lock(adaptive_token_mask_cache_mutex.value());]==]
  [==[    levada::grammar::WorkLimit::charge_bytes(MemorySize(cur_adaptive_token_mask_cache));
    if (max_threads_ > 1) {
      std::lock_guard<std::mutex> lock(adaptive_token_mask_cache_mutex.value());]==])
# Whole grammars are kept by grammar::Compiler, which also bounds what failed ones leave; masks of equal rules are shared here.
edit_source(xgrammar grammar_compiler.cc
  [==[cache_enabled_(cache_enabled && (!enable_dynamic_compilation || max_memory_bytes == -1))]==]
  [==[cache_enabled_(false)]==])

# --- What a schema asks for is done or said: the engine would pass over these without a word.
edit_source(xgrammar json_schema_converter.cc
  [==[  if (!verbose) {
    return;
  }]==]
  [==[]==])
edit_source(xgrammar json_schema_converter.cc
  [==[      schema_obj, {"not", "if", "then", "else", "dependentRequired", "dependentSchemas"}
  );]==]
  [==[      schema_obj, {"not", "if", "then", "else", "dependentRequired", "dependentSchemas"}
  );
  // Only one of these is looked at, and nothing beside it.
  for (const char* alone : {"$ref", "anyOf", "oneOf", "allOf"}) {
    if (schema_obj.count(alone) == 0) continue;
    for (const char* beside :
         {"$ref", "anyOf", "oneOf", "allOf", "const", "enum", "properties", "required", "additionalProperties",
          "patternProperties", "propertyNames", "minProperties", "maxProperties", "items", "prefixItems", "minItems",
          "maxItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
          "exclusiveMaximum", "multipleOf"}) {
      if (std::string(alone) != beside && schema_obj.count(beside) != 0) {
        XGRAMMAR_LOG(WARNING) << "Keyword " << beside << " beside " << alone << " is not supported";
      }
    }
  }]==])

# --- Grammars in Lark's syntax aren't offered; reading them is a tenth of the compile time.
edit_source(xgrammar grammar.cc
  [==[  return LarkToGrammar(lark_string, tokenizer_info, named_grammars);]==]
  [==[  XGRAMMAR_LOG(FATAL) << "Lark grammars are not built in";
  XGRAMMAR_UNREACHABLE();]==])

file(GLOB_RECURSE xgrammar_files RELATIVE "${xgrammar_from}" "${xgrammar_from}/*.cc" "${xgrammar_from}/*.h")
list(FILTER xgrammar_files EXCLUDE REGEX "^(tvm_ffi/|lark_converter\\.cc)")
set(xgrammar_sources)
foreach(file ${xgrammar_files})
  write_source(xgrammar "${file}")
  if(file MATCHES "\\.cc$")
    list(APPEND xgrammar_sources "${xgrammar_to}/${file}")
  endif()
endforeach()

add_library(levada_xgrammar STATIC ${xgrammar_sources} ${xgrammar_shim}/engine_log.cc ${xgrammar_shim}/work_limit.cc)
target_include_directories(levada_xgrammar SYSTEM
  PUBLIC "${xgrammar_root}/include" "${xgrammar_root}/3rdparty/dlpack/include" "${xgrammar_shim}"
  PRIVATE "${xgrammar_root}/3rdparty/picojson" "${xgrammar_to}")
target_compile_options(levada_xgrammar PRIVATE -w -fwrapv -g0)
if(LEVADA_SANITIZE)  # memory errors and races are looked for here, too; the engine's own arithmetic is its authors'
  target_compile_options(levada_xgrammar PRIVATE -fno-sanitize=undefined)
endif()
# What runs per token, and per token of the vocabulary while a grammar is compiled, is optimized as all else is.
set(xgrammar_cold ${xgrammar_sources})
list(FILTER xgrammar_cold EXCLUDE REGEX "/(earley_parser|grammar_compiler|grammar_matcher|fsm)\\.cc$")
set_source_files_properties(${xgrammar_cold} PROPERTIES COMPILE_OPTIONS -O1)
target_compile_definitions(levada_xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
  XGRAMMAR_LOG_CUSTOMIZE=1)
