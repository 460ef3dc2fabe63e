// What: RecencyList, the unlocked nodes of a tree in the order of their last use, threaded through the nodes.
// Owner: RadixTree.
// Thread: the scheduler's.
// Invariant: most recent first, every node before its children, so the last entry is a leaf.
// All operations but iteration are O(1) and allocate nothing.
#pragma once

#include "kv/radix_node.h"

namespace levada::kv {

class RecencyList {
 public:
  RecencyList() { ends_.newer = ends_.older = &ends_; }
  RecencyList(const RecencyList&) = delete;
  RecencyList& operator=(const RecencyList&) = delete;

  static bool contains(const RadixNode& node) { return node.newer != nullptr; }
  void push_newest(RadixNode& node) { link_behind(ends_, node); }
  void insert_before(RadixNode& older, RadixNode& node) { link_behind(*older.newer, node); }
  void remove(RadixNode& node) {
    node.newer->older = node.older;
    node.older->newer = node.newer;
    node.newer = node.older = nullptr;
  }
  void move_to_newest(RadixNode& node) {
    remove(node);
    push_newest(node);
  }
  // Null when empty.
  RadixNode* oldest() const { return ends_.newer == &ends_ ? nullptr : ends_.newer; }
  RadixNode* newest() const { return ends_.older == &ends_ ? nullptr : ends_.older; }
  // The next one towards the newest or the oldest; null at the end.
  RadixNode* next_newer(const RadixNode& node) const { return node.newer == &ends_ ? nullptr : node.newer; }
  RadixNode* next_older(const RadixNode& node) const { return node.older == &ends_ ? nullptr : node.older; }

 private:
  static void link_behind(RadixNode& newer, RadixNode& node) {
    node.newer = &newer;
    node.older = newer.older;
    newer.older->newer = &node;
    newer.older = &node;
  }
  RadixNode ends_;  // ring sentinel: older is the newest entry, newer the oldest
};

}  // namespace levada::kv
