// What: Overloaded, one visitor for std::visit made of a lambda per alternative.
// Owner: none.
// Thread: any.
// Invariant: the lambdas together cover every alternative, or it does not compile.
#pragma once

namespace levada {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace levada
