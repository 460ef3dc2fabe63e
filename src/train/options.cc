#include "train/options.h"

namespace levada::train {

void describe(OptionTable& table, Options& o) {
  constexpr double kMany = 1e9;
  table.begin_room("train");
  table.add("batch_size", &o.batch_size, "samples of a micro-step").range(1, 4096);
  table.add("accumulation_steps", &o.accumulation_steps, "micro-steps of an optimizer step").range(1, 4096);
  table.add("total_steps", &o.total_steps, "optimizer steps of the whole schedule").range(0, kMany);
  table.add("learning_rate", &o.learning_rate, "peak of the schedule").range(0, 1);
  table.add("lr_scheduler", &o.lr_scheduler, "what follows the warm-up").choices({"cosine", "constant"});
  table.add("warmup_ratio", &o.warmup_ratio, "part of total_steps with a rising rate").range(0, 1);
  table.add("max_grad_norm", &o.max_grad_norm, "gradients are scaled down to this norm").range(1e-6, kMany);
  table.add("weight_decay", &o.weight_decay, "AdamW's decay").range(0, 1);
  table.add("loss_type", &o.loss_type, "how drafted positions are weighted")
      .choices({"dflash", "dpace", "dpace-cumulative-confidence-only", "dpace-continuation-value-only"});
  table.add("loss_decay_gamma", &o.loss_decay_gamma, "decay of the weight along a block, in positions; 0: none")
      .range(0, kMany);
  table.add("dpace_alpha", &o.dpace_alpha, "floor of a D-PACE confidence").range(0, 1);
  table.add("num_anchors", &o.num_anchors, "blocks trained per sample and visit, at most").range(1, 65536);
  table.add("objective_chunk_blocks", &o.objective_chunk_blocks, "blocks whose logits exist at once; 0: all")
      .range(0, 65536);
  table.add("max_length", &o.max_length, "tokens of a sample that are used").range(2, 1 << 20);
  table.add("seed", &o.seed, "of first weights and anchors").range(0, 9007199254740992.0);
  table.add("threads", &o.threads, "0: every core this process may use, shared with its ranks").range(0, 1024);
  table.add("device", &o.device, "where to train").choices({"cpu", "cuda"});
  table.add("torch_dtype", &o.torch_dtype, "of weights and activations; masters are float32")
      .choices({"bfloat16", "float32"});
  table.add("output_dir", &o.output_dir, "folder of the checkpoints");
  table.add("run_id", &o.run_id, "first part of a checkpoint's name");
  table.add("save_interval", &o.save_interval, "steps between checkpoints; 0: only at the end").range(0, kMany);
  table.add("max_checkpoints", &o.max_checkpoints, "newest checkpoints kept; 0: all").range(0, kMany);
  table.add("eval_interval", &o.eval_interval, "steps between evaluations; 0: never").range(0, kMany);
  table.add("log_interval", &o.log_interval, "steps between lines of the log; 0: none").range(0, kMany);
}

}  // namespace levada::train
