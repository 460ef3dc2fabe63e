// CpuOps::paged_attention: how the queries of a batch become tasks.
#include <algorithm>
#include <span>
#include <vector>

#include "kernels/checks.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/scratch.h"

namespace levada::kernels {
namespace {

// Query rows (positions * heads of a group) that share one pass over the keys: enough to make widening them cheap, few
// enough that scores and output stay in the second-level cache.
constexpr std::int64_t kQueryRows = 48;

// One KV head of some queries of a slice; a long single query is cut into spans, which are merged afterwards.
struct Task {
  AttentionArgs args;
  std::int64_t spans = 1;          // 1: attend as a whole
  std::int64_t partial_first = 0;  // floats, in the buffer of partial results
};

struct SpanTask {
  std::size_t task;
  std::int64_t span;
};

struct Tasks {
  std::vector<Task> whole, cut;
  std::vector<SpanTask> spans;
  std::int64_t partial_floats = 0;
};

AttentionArgs args_for(const TensorView& q, const PagedBatch& batch, const TensorView& k_plane,
                       const TensorView& v_plane, float scale, const TensorView& out) {
  return {.q = q.as<const float>(),
          .q_row_stride = q.strides[0],
          .q_head_stride = q.strides[1],
          .out = out.as<float>(),
          .out_row_stride = out.strides[0],
          .out_head_stride = out.strides[1],
          .k_plane = k_plane.data,
          .v_plane = v_plane.data,
          .planes_are_bf16 = k_plane.dtype == DType::kBF16,
          .token_stride = k_plane.strides[1],
          .page_size = batch.page_size,
          .block_table = nullptr,
          .queries = 0,
          .group = q.shape[1] / k_plane.shape[2],
          .width = q.shape[2],
          .first_position = 0,
          .scale = scale,
          .first_key = 0};
}

// `base` moved to queries [i, i + queries) of slice s and one KV head.
AttentionArgs args_at(const AttentionArgs& base, const PagedBatch& batch, std::size_t s, std::int64_t i,
                      std::int64_t queries, std::int64_t kv_head) {
  AttentionArgs args = base;
  const std::int64_t row = batch.first_row[s] + i;
  args.q += row * base.q_row_stride + kv_head * base.group * base.q_head_stride;
  args.out += row * base.out_row_stride + kv_head * base.group * base.out_head_stride;
  const std::int64_t offset = kv_head * base.width * std::int64_t{base.planes_are_bf16 ? 2 : 4};
  args.k_plane = static_cast<const char*>(base.k_plane) + offset;
  args.v_plane = static_cast<const char*>(base.v_plane) + offset;
  args.block_table = batch.block_tables.data() + batch.block_table_first[s];
  args.queries = queries;
  args.first_position = batch.context[s] + i;
  if (!batch.first_key.empty()) args.first_key = batch.first_key[s];
  return args;
}

// All KV heads of the queries that `first`, the first head's arguments, are of. A lone query's spans come one after the
// other with their heads side by side: as a token's heads lie in memory, so that whoever takes them reads in order.
void add_tasks(Tasks& tasks, const KernelTable& table, std::span<const AttentionArgs> heads) {
  const AttentionArgs& first = heads.front();
  const std::int64_t begin = first_span(first);
  const std::int64_t spans = (first.first_position + first.queries + kSpanKeys - 1) / kSpanKeys - begin;
  if (first.queries > 1 || spans == 1) {
    for (const AttentionArgs& args : heads) tasks.whole.push_back({.args = args});
    return;
  }
  const std::size_t first_task = tasks.cut.size();
  for (const AttentionArgs& args : heads) {
    tasks.cut.push_back({.args = args, .spans = spans, .partial_first = tasks.partial_floats});
    tasks.partial_floats += spans * table.partial_floats(args.group, args.width);
  }
  for (std::int64_t span = 0; span < spans; ++span) {
    for (std::size_t head = 0; head < heads.size(); ++head) tasks.spans.push_back({first_task + head, begin + span});
  }
}

}  // namespace

void CpuOps::paged_attention(const TensorView& q, const PagedBatch& batch, const TensorView& k_plane,
                             const TensorView& v_plane, float scale, const TensorView& out) {
  check_paged_attention(q, batch, k_plane, v_plane, out);
  const AttentionArgs base = args_for(q, batch, k_plane, v_plane, scale, out);
  if (base.group == 0 || base.width == 0) return;
  const std::int64_t block = std::max<std::int64_t>(1, kQueryRows / base.group);

  Tasks tasks;
  std::vector<AttentionArgs> heads(static_cast<std::size_t>(k_plane.shape[2]));
  for (std::size_t s = 0; s < batch.rows.size(); ++s) {
    for (std::int64_t i = 0; i < batch.rows[s]; i += block) {
      const std::int64_t queries = std::min<std::int64_t>(block, batch.rows[s] - i);
      for (std::size_t head = 0; head < heads.size(); ++head) {
        heads[head] = args_at(base, batch, s, i, queries, static_cast<std::int64_t>(head));
      }
      add_tasks(tasks, table_, heads);
    }
  }
  const auto scratch = [&](const AttentionArgs& args) {
    return thread_scratch(table_.attention_scratch(args.queries * args.group, args.width));
  };
  pool_.parallel_for(static_cast<std::int64_t>(tasks.whole.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const Task& task = tasks.whole[static_cast<std::size_t>(t)];
      table_.attend(task.args, scratch(task.args));
    }
  });
  std::vector<float> partials(static_cast<std::size_t>(tasks.partial_floats));
  pool_.parallel_for(
      static_cast<std::int64_t>(tasks.spans.size()), k_plane.shape[2], [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
          const SpanTask& part = tasks.spans[static_cast<std::size_t>(t)];
          const Task& task = tasks.cut[part.task];
          float* partial =
              partials.data() + task.partial_first +
              (part.span - first_span(task.args)) * table_.partial_floats(task.args.group, task.args.width);
          table_.attend_span(task.args, part.span, partial, scratch(task.args));
        }
      });
  for (const Task& task : tasks.cut) {
    table_.merge_spans(task.args, task.spans, partials.data() + task.partial_first, scratch(task.args));
  }
}

}  // namespace levada::kernels
