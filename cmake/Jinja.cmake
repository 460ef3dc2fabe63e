# levada_jinja: the Jinja engine of llama.cpp (downloaded by scripts/setup.sh, pinned by hash), as a static library.
#
# The engine bounds neither work nor recursion, and a few of its built-ins divide, sort or copy in ways a template or a
# message could use to stop the process. Its sources are therefore copied into the build folder with the edits below;
# each edit must find its place or configuring fails. Nothing of the engine is committed.
set(jinja_from "${LEVADA_DEPS_DIR}/llama.cpp/common")
set(jinja_to "${CMAKE_BINARY_DIR}/jinja_engine")
set(jinja_shim "${CMAKE_SOURCE_DIR}/src/text/jinja_shim")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_FILE}")
include("${CMAKE_CURRENT_LIST_DIR}/EditedSource.cmake")

# --- Every statement executed, every token looked at by the recursive parser, every value made is a step.
edit_source(jinja jinja/runtime.cpp
  [==[value statement::execute(context & ctx) const {]==]
  [==[value statement::execute(context & ctx) const {
    levada::text::RenderBudget::enter();]==])
edit_source(jinja jinja/parser.cpp
  [==[const token & peek(size_t offset = 0) const {]==]
  [==[const token & peek(size_t offset = 0) const {
        levada::text::RenderBudget::enter();]==])
edit_source(jinja jinja/value.h [==[struct value_t {]==] [==[struct value_t : levada::text::Listed {]==])
edit_source(jinja jinja/value.h
  [==[    value_t() = default;
    value_t(const value_t &) = default;
    virtual ~value_t() = default;]==]
  [==[    value_t() = default;
    virtual ~value_t() { levada::text::bury(val_arr, val_obj); }
    void give_up(std::vector<std::shared_ptr<void>> & references) noexcept override {
        for (auto & item : val_arr) references.push_back(std::move(item));
        for (auto & [key, val] : val_obj) references.insert(references.end(), {key, val});
        val_arr.clear();
        val_obj.clear();
    }]==])
# The references that only an object's table holds.
edit_source(jinja jinja/value.h
  [==[    bool has_builtins = true; // context and loop objects do not have builtins
    value_object_t() = default;]==]
  [==[    bool has_builtins = true; // context and loop objects do not have builtins
    value_object_t() = default;
    void give_up(std::vector<std::shared_ptr<void>> & references) noexcept override {
        for (auto & [key, val] : unordered) references.insert(references.end(), {key, val});
        unordered.clear();
        value_t::give_up(references);
    }]==])
edit_source(jinja jinja/value.h [==[#include "utils.h"]==] [==[#include "utils.h"
#include "render_budget.h"]==])
edit_source(jinja jinja/string.h [==[#include "utils.h"]==] [==[#include "utils.h"
#include "render_budget.h"]==])

# --- Recursions over values: nested deep, shared (exponential to walk) or cyclic.
edit_source(jinja jinja/runtime.h
  [==[static void gather_string_parts_recursive(const value & val, value_string & parts) {]==]
  [==[static void gather_string_parts_recursive(const value & val, value_string & parts) {
    levada::text::RenderBudget::enter();]==])
# A list that holds itself would be copied once per level.
edit_source(jinja jinja/runtime.h
  [==[auto items = cast_val<value_array>(val)->as_array();]==]
  [==[const auto & items = cast_val<value_array>(val)->as_array();
        levada::text::RenderBudget::charge_steps(items.size());]==])
edit_source(jinja jinja/value.cpp
  [==[std::string value_to_string_repr(const value & val) {]==]
  [==[std::string value_to_string_repr(const value & val) {
    levada::text::RenderBudget::enter();]==])
edit_source(jinja jinja/value.cpp
  [==[    auto indent_str = [indent, curr_lvl]() -> std::string {]==]
  [==[    levada::text::RenderBudget::enter();
    levada::text::RenderBudget::charge_bytes(
        16 + item_sep.size() + key_sep.size() + 3 * size_t(indent > 0 ? indent : 0) * (curr_lvl + 1));
    auto indent_str = [indent, curr_lvl]() -> std::string {]==])
edit_source(jinja jinja/value.cpp
  [==[static value from_json(const common_json & j, bool mark_input) {]==]
  [==[static value from_json(const common_json & j, bool mark_input) {
    levada::text::RenderBudget::enter();]==])
edit_source(jinja jinja/value.h
  [==[operator==(const value_t & other) const { return]==]
  [==[operator==(const value_t & other) const { levada::text::RenderBudget::enter_shallow(); return]==])
edit_source(jinja jinja/value.h
  [==[    virtual bool is_hashable() const override {
        if (]==]
  [==[    virtual bool is_hashable() const override {
        levada::text::RenderBudget::enter_shallow();
        if (]==])

# --- Text: what is copied is charged. A string's parts cost too.
edit_source(jinja jinja/string.h
  [==[        parts.push_back({user_input, v});]==]
  [==[        levada::text::RenderBudget::charge_bytes(v.size());
        parts.push_back({user_input, v});]==])
edit_source(jinja jinja/string.cpp
  [==[    for (const auto & part : other.parts) {
        parts.push_back(part);]==]
  [==[    for (const auto & part : other.parts) {
        levada::text::RenderBudget::charge_bytes(sizeof(part) + part.val.size());
        parts.push_back(part);]==])
edit_source(jinja jinja/string.cpp
  [==[std::string string::str() const {]==]
  [==[std::string string::str() const {
    levada::text::RenderBudget::charge_bytes(length());]==])
edit_source(jinja jinja/string.cpp
  [==[                parts.erase(parts.begin() + i);]==]
  [==[                levada::text::RenderBudget::charge_bytes(sizeof(string_part) * (parts.size() - i));
                parts.erase(parts.begin() + i);]==])
edit_source(jinja jinja/value.h
  [==[    virtual string as_string() const override { return val_str; }]==]
  [==[    virtual string as_string() const override {
        levada::text::RenderBudget::charge_bytes(val_str.length() + sizeof(string_part) * val_str.parts.size());
        return val_str;
    }]==])

# --- Lists and objects: items stored are steps, items copied or searched a 64th of one.
edit_source(jinja jinja/value.h
  [==[        val_arr.push_back(val);]==]
  [==[        levada::text::RenderBudget::charge_steps(1);
        val_arr.push_back(val);]==])
edit_source(jinja jinja/value.h
  [==[        val_arr.push_back(std::move(val));]==]
  [==[        levada::text::RenderBudget::charge_steps(1);
        val_arr.push_back(std::move(val));]==])
edit_source(jinja jinja/value.h
  [==[        val_arr = arr;]==]
  [==[        levada::text::RenderBudget::charge_steps(arr.size());
        val_arr = arr;]==])
edit_source(jinja jinja/value.h
  [==[as_array() const override { return val_arr; }]==]
  [==[as_array() const override {
        levada::text::RenderBudget::charge_steps(val_arr.size() / 64);
        return val_arr;
    }]==])
edit_source(jinja jinja/value.h
  [==[as_ordered_object() const override { return val_obj; }]==]
  [==[as_ordered_object() const override {
        levada::text::RenderBudget::charge_steps(val_obj.size() / 64);
        return val_obj;
    }]==])
edit_source(jinja jinja/value.h
  [==[            // if key exists, replace value in ordered list instead of appending]==]
  [==[            levada::text::RenderBudget::charge_steps(val_obj.size() / 64);]==])
edit_source(jinja jinja/value.h
  [==[        val_arr.erase(val_arr.begin() + index);]==]
  [==[        levada::text::RenderBudget::charge_steps(val_arr.size() / 64);
        val_arr.erase(val_arr.begin() + index);]==])

# --- Built-ins that were quadratic, unbounded or undefined on some inputs.
edit_source(jinja jinja/value.cpp
  [==[                    haystack->as_string().str().find(needle->as_string().str()) != std::string::npos);]==]
  [==[                    levada::text::find_linear(haystack->as_string().str(), needle->as_string().str(), 0) != std::string::npos);]==])
edit_source(jinja jinja/value.cpp
  [==[            while ((pos = str.find(delim)) != std::string::npos && maxsplit != 0) {
                token = str.substr(0, pos);
                result->push_back(mk_val<value_string>(token));
                str.erase(0, pos + delim.length());
                --maxsplit;
            }]==]
  [==[            size_t rest = 0;
            while ((pos = levada::text::find_linear(str, delim, rest)) != std::string::npos && maxsplit != 0) {
                token = str.substr(rest, pos - rest);
                result->push_back(mk_val<value_string>(token));
                rest = pos + delim.length();
                --maxsplit;
            }
            str.erase(0, rest);]==])
edit_source(jinja jinja/value.cpp
  [==[                    new_res.reserve(str.length() + new_str.length() * (str.length() + 1));]==]
  [==[                    levada::text::RenderBudget::charge_bytes(str.length() + new_str.length() * (str.length() + 1));
                    new_res.reserve(str.length() + new_str.length() * (str.length() + 1));]==])
edit_source(jinja jinja/value.cpp
  [==[                    while ((pos = str.find(old_str, pos)) != std::string::npos) {
                        str.replace(pos, old_str.length(), new_str);
                        pos += new_str.length();
                    }]==]
  [==[                    (void) pos;
                    str = levada::text::replace_all(str, old_str, new_str);]==])
edit_source(jinja jinja/value.cpp
  [==[                indent.assign(val_width->as_int(), ' ');]==]
  [==[                levada::text::RenderBudget::charge_bytes(val_width->as_int());
                indent.assign(val_width->as_int(), ' ');]==])
edit_source(jinja jinja/value.cpp
  [==[                indented += line;]==]
  [==[                levada::text::RenderBudget::charge_bytes(indent.size() + line.size());
                indented += line;]==])
edit_source(jinja jinja/value.cpp
  [==[                    result += delim;]==]
  [==[                    levada::text::RenderBudget::charge_bytes(delim.size());
                    result += delim;]==])
edit_source(jinja jinja/value.cpp
  [==[            bool res = args.get_pos(0)->val_int % args.get_pos(1)->val_int == 0;]==]
  [==[            const int64_t divisor = args.get_pos(1)->val_int;
            if (divisor == 0) throw raised_exception("divisibleby: division by zero");
            bool res = divisor == -1 || args.get_pos(0)->val_int % divisor == 0;]==])
# An inconsistent order (9 < 10, 10 == "10", "10" < 9) makes std::sort leave its range; stable_sort doesn't.
edit_source(jinja jinja/value.cpp [==[std::sort(]==] [==[std::stable_sort(]==])

# --- Speed: these copied a whole table of functions for every name that was looked up.
edit_source(jinja jinja/runtime.cpp
  [==[    auto builtins = global_builtins();]==] [==[    const auto & builtins = global_builtins();]==])
edit_source(jinja jinja/runtime.cpp
  [==[    auto builtins = input->get_builtins();]==] [==[    const auto & builtins = input->get_builtins();]==])

# A scope copied every variable of the one around it, for each loop twice per item. Now it points there.
edit_source(jinja jinja/runtime.h
  [==[struct context {]==]
  [==[struct scope_t : levada::text::Listed {
    std::unordered_map<std::string, value> vars;
    std::shared_ptr<scope_t> outer;

    explicit scope_t(std::shared_ptr<scope_t> around = nullptr) : outer(std::move(around)) {}
    // Values hold scopes (of a caller's block) and scopes values: however long the chain, no recursion.
    ~scope_t() {
        std::vector<value> last;
        std::vector<std::pair<value, value>> no_pairs;
        for (auto & [name, val] : vars) last.push_back(std::move(val));
        vars.clear();
        levada::text::bury(last, no_pairs);
        while (outer && outer.use_count() == 1) outer = std::move(outer->outer);
    }
    void give_up(std::vector<std::shared_ptr<void>> & references) noexcept override {
        for (auto & [name, val] : vars) references.push_back(std::move(val));
        vars.clear();
        references.push_back(std::move(outer));
    }
};

struct context {]==])
edit_source(jinja jinja/runtime.h
  [==[        env = mk_val<value_object>();
        env->has_builtins = false; // context object has no builtins
        env->insert("true",  mk_val<value_bool>(true));
        env->insert("True",  mk_val<value_bool>(true));
        env->insert("false", mk_val<value_bool>(false));
        env->insert("False", mk_val<value_bool>(false));
        env->insert("none",  mk_val<value_none>());
        env->insert("None",  mk_val<value_none>());]==]
  [==[        set_val("true",  mk_val<value_bool>(true));
        set_val("True",  mk_val<value_bool>(true));
        set_val("false", mk_val<value_bool>(false));
        set_val("False", mk_val<value_bool>(false));
        set_val("none",  mk_val<value_none>());
        set_val("None",  mk_val<value_none>());]==])
edit_source(jinja jinja/runtime.h
  [==[    context(const context & parent) : context() {
        // inherit variables (for example, when entering a new scope)
        auto & pvar = parent.env->as_ordered_object();
        for (const auto & pair : pvar) {
            set_val(pair.first, pair.second);
        }]==]
  [==[    context(const context & parent) : scope(std::make_shared<scope_t>(parent.scope)) {]==])
edit_source(jinja jinja/runtime.h
  [==[        value default_val = mk_val<value_undefined>(name);
        return env->at(name, default_val);]==]
  [==[        for (const scope_t * at = scope.get(); at != nullptr; at = at->outer.get()) {
            levada::text::RenderBudget::charge_steps(1);
            if (auto found = at->vars.find(name); found != at->vars.end()) return found->second;
        }
        return mk_val<value_undefined>(name);]==])
edit_source(jinja jinja/runtime.h
  [==[        env->insert(name, val);
    }

    void set_val(const value & name, const value & val) {
        env->insert(name, val);
    }

    void print_vars() const {
        printf("Context Variables:\n%s\n", value_to_json(env, 2).c_str());
    }]==]
  [==[        levada::text::RenderBudget::charge_steps(1);
        scope->vars[name] = val;
    }]==])
edit_source(jinja jinja/runtime.h
  [==[    value_object env;]==]
  [==[    std::shared_ptr<scope_t> scope = std::make_shared<scope_t>();]==])

set(jinja_copied
  json.cpp json.h unicode.cpp unicode.h jinja/lexer.cpp jinja/lexer.h jinja/parser.cpp jinja/parser.h
  jinja/runtime.cpp jinja/runtime.h jinja/string.cpp jinja/string.h jinja/utils.h jinja/value.cpp jinja/value.h)
foreach(file ${jinja_copied})
  write_source(jinja "${file}")
endforeach()

add_library(levada_jinja STATIC
  ${jinja_to}/json.cpp ${jinja_to}/unicode.cpp ${jinja_to}/jinja/lexer.cpp ${jinja_to}/jinja/parser.cpp
  ${jinja_to}/jinja/runtime.cpp ${jinja_to}/jinja/string.cpp ${jinja_to}/jinja/value.cpp
  ${jinja_shim}/render_budget.cc)
# Never -I<engine>/jinja: its string.h would shadow the system's.
target_include_directories(levada_jinja SYSTEM PUBLIC "${jinja_to}" "${jinja_shim}"
  PRIVATE "${LEVADA_DEPS_DIR}/llama.cpp/vendor")
# -fwrapv: integer overflow in a template's arithmetic wraps. NDEBUG: its asserts would end the process on bad templates.
target_compile_options(levada_jinja PRIVATE -w -fwrapv)
target_compile_definitions(levada_jinja PRIVATE NDEBUG)
