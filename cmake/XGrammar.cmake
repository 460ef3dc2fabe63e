# levada_xgrammar: the grammar engine XGrammar (downloaded by scripts/setup.sh, pinned by hash), as a static library.
#
# The engine bounds neither the work nor the stack that a grammar may cost, and says on stderr what it leaves out of one. Its
# sources are therefore copied into the build folder with the edits below; each edit must find its place or configuring fails.
# Nothing of the engine is committed. XGRAMMAR_LOG_CUSTOMIZE hands its messages to src/grammar/engine_shim/engine_log.cc.
# clang-14 does not compile it: the build of scripts/fuzz.sh links the engine of the release build (LEVADA_XGRAMMAR_LIBRARY).
set(LEVADA_XGRAMMAR_LIBRARY "" CACHE FILEPATH "An engine built before, to be linked instead of building one")
set(xgrammar_from "${LEVADA_DEPS_DIR}/xgrammar")
set(xgrammar_to "${CMAKE_BINARY_DIR}/xgrammar")
set(xgrammar_shim "${CMAKE_SOURCE_DIR}/src/grammar/engine_shim")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_FILE}")
if(NOT EXISTS "${xgrammar_from}/cpp/grammar_compiler.cc")
  message(FATAL_ERROR "the grammar engine is missing: run scripts/setup.sh (or `make build`)")
endif()

if(LEVADA_XGRAMMAR_LIBRARY)
  add_library(levada_xgrammar STATIC IMPORTED GLOBAL)
  set_target_properties(levada_xgrammar PROPERTIES IMPORTED_LOCATION "${LEVADA_XGRAMMAR_LIBRARY}")
  target_include_directories(levada_xgrammar SYSTEM INTERFACE
    "${xgrammar_from}/include" "${xgrammar_from}/3rdparty/dlpack/include" "${xgrammar_shim}")
  return()
endif()

# xgrammar_edit(FILE ANCHOR REPLACEMENT): replaces every occurrence of ANCHOR in the text held in xgrammar_text_FILE.
function(xgrammar_edit file anchor replacement)
  string(MAKE_C_IDENTIFIER "xgrammar_text_${file}" variable)
  if(NOT DEFINED ${variable})
    file(READ "${xgrammar_from}/cpp/${file}" ${variable})
  endif()
  string(FIND "${${variable}}" "${anchor}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "cmake/XGrammar.cmake: ${file} no longer contains:\n${anchor}")
  endif()
  string(REPLACE "${anchor}" "${replacement}" ${variable} "${${variable}}")
  set(${variable} "${${variable}}" PARENT_SCOPE)
endfunction()

# --- Every state of the parser, every state and edge of an automaton, every expression of a grammar is a step.
xgrammar_edit(support/logging.h [==[#include <ctime>]==] [==[#include <ctime>
#include "work_limit.h"]==])
xgrammar_edit(earley_parser.h
  [==[    if (!IsStateVisitedInQueue(state)) {]==]
  [==[    levada::grammar::WorkLimit::step();
    if (!IsStateVisitedInQueue(state)) {]==])
xgrammar_edit(earley_parser.cc
  [==[bool EarleyParser::Advance(const uint8_t ch, bool debug_print) {]==]
  [==[bool EarleyParser::Advance(const uint8_t ch, bool debug_print) {
  levada::grammar::WorkLimit::step();]==])
xgrammar_edit(fsm.cc
  [==[  int AddState() {]==]
  [==[  int AddState() {
    levada::grammar::WorkLimit::step();]==])
xgrammar_edit(fsm.cc
  [==[  void AddEdge(int from, int to, int32_t min, int32_t max) {]==]
  [==[  void AddEdge(int from, int to, int32_t min, int32_t max) {
    levada::grammar::WorkLimit::step();]==])
xgrammar_edit(fsm.cc
  [==[    for (const auto& edge : edges_[current]) {]==]
  [==[    levada::grammar::WorkLimit::step();
    for (const auto& edge : edges_[current]) {]==])
xgrammar_edit(grammar_builder.cc
  [==[int32_t GrammarBuilder::AddGrammarExpr(const GrammarExpr& grammar_expr) {]==]
  [==[int32_t GrammarBuilder::AddGrammarExpr(const GrammarExpr& grammar_expr) {
  levada::grammar::WorkLimit::step();]==])

# --- Recursions over nested schemas, groups and expressions.
xgrammar_edit(grammar_functor.h
  [==[  virtual T VisitExpr(const GrammarExpr& grammar_expr) {]==]
  [==[  virtual T VisitExpr(const GrammarExpr& grammar_expr) {
    levada::grammar::WorkLimit::enter();]==])
xgrammar_edit(grammar_functor.cc
  [==[  XGRAMMAR_DCHECK(start_state >= 0 && start_state < target_fsm_.NumStates());
  switch (expr.type) {]==]
  [==[  levada::grammar::WorkLimit::enter();
  switch (expr.type) {]==])
xgrammar_edit(grammar_parser.cc
  [==[int32_t EBNFParser::ParseElement() {]==]
  [==[int32_t EBNFParser::ParseElement() {
  levada::grammar::WorkLimit::enter();]==])
xgrammar_edit(json_schema_converter.cc
  [==[  std::string cache_key = ComputeCacheKey(schema);]==]
  [==[  levada::grammar::WorkLimit::enter();
  std::string cache_key = ComputeCacheKey(schema);]==])
xgrammar_edit(json_schema_converter.cc
  [==[    const SchemaSpecPtr& spec, const std::string& rule_name_hint
) {
  return std::visit(]==]
  [==[    const SchemaSpecPtr& spec, const std::string& rule_name_hint
) {
  levada::grammar::WorkLimit::enter();
  return std::visit(]==])
xgrammar_edit(fsm_builder.cc
  [==[Result<FSMWithStartEnd> RegexIR::visit(const RegexIR::Union& state) const {]==]
  [==[Result<FSMWithStartEnd> RegexIR::visit(const RegexIR::Union& state) const {
  levada::grammar::WorkLimit::enter();]==])
xgrammar_edit(fsm_builder.cc
  [==[Result<FSMWithStartEnd> RegexIR::visit(const RegexIR::Symbol& state) const {]==]
  [==[Result<FSMWithStartEnd> RegexIR::visit(const RegexIR::Symbol& state) const {
  levada::grammar::WorkLimit::enter();]==])

# --- The masks of a grammar's states are most of its memory.
xgrammar_edit(grammar_compiler.cc
  [==[    if (max_threads_ > 1) {
      std::lock_guard<std::mutex> lock(adaptive_token_mask_cache_mutex.value());]==]
  [==[    levada::grammar::WorkLimit::charge_bytes(MemorySize(cur_adaptive_token_mask_cache));
    if (max_threads_ > 1) {
      std::lock_guard<std::mutex> lock(adaptive_token_mask_cache_mutex.value());]==])
# Whole grammars are kept by grammar::Compiler, which also bounds what failed ones leave; masks of equal rules are shared here.
xgrammar_edit(grammar_compiler.cc
  [==[cache_enabled_(cache_enabled && (!enable_dynamic_compilation || max_memory_bytes == -1))]==]
  [==[cache_enabled_(false)]==])

# --- What a schema asks for is done or said: the engine would pass over these without a word.
xgrammar_edit(json_schema_converter.cc
  [==[  if (!verbose) {
    return;
  }]==]
  [==[]==])
xgrammar_edit(json_schema_converter.cc
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
xgrammar_edit(grammar.cc
  [==[  return LarkToGrammar(lark_string, tokenizer_info, named_grammars);]==]
  [==[  XGRAMMAR_LOG(FATAL) << "Lark grammars are not built in";
  XGRAMMAR_UNREACHABLE();]==])

file(GLOB_RECURSE xgrammar_files RELATIVE "${xgrammar_from}/cpp" "${xgrammar_from}/cpp/*.cc" "${xgrammar_from}/cpp/*.h")
list(FILTER xgrammar_files EXCLUDE REGEX "^(tvm_ffi/|lark_converter\\.cc)")
set(xgrammar_sources)
foreach(file ${xgrammar_files})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${xgrammar_from}/cpp/${file}")
  string(MAKE_C_IDENTIFIER "xgrammar_text_${file}" variable)
  if(DEFINED ${variable})
    file(CONFIGURE OUTPUT "${xgrammar_to}/${file}" CONTENT "${${variable}}" @ONLY)  # writes only what changed
  else()
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY "${xgrammar_to}/${folder}")
    file(COPY_FILE "${xgrammar_from}/cpp/${file}" "${xgrammar_to}/${file}" ONLY_IF_DIFFERENT)
  endif()
  if(file MATCHES "\\.cc$")
    list(APPEND xgrammar_sources "${xgrammar_to}/${file}")
  endif()
endforeach()

add_library(levada_xgrammar STATIC ${xgrammar_sources} ${xgrammar_shim}/engine_log.cc ${xgrammar_shim}/work_limit.cc)
target_include_directories(levada_xgrammar SYSTEM
  PUBLIC "${xgrammar_from}/include" "${xgrammar_from}/3rdparty/dlpack/include" "${xgrammar_shim}"
  PRIVATE "${xgrammar_from}/3rdparty/picojson" "${xgrammar_to}")
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
