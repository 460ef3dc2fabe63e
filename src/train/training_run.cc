#include "train/training_run.h"

#include "base/log.h"

namespace levada::train {
namespace {

constexpr int kMostGivenUp = 8;

bool due(std::int64_t step, std::int64_t interval) { return interval > 0 && step % interval == 0; }

class Run {
 public:
  Run(DflashTrainer& trainer, SampleSource& source, const Clock& clock, const RunHooks& hooks)
      : trainer_(trainer), source_(source), clock_(clock), hooks_(hooks), saved_step_(trainer.steps()) {}

  Result<RunReport> all() {
    while (trainer_.steps() < trainer_.options().total_steps) {
      if (hooks_.stop != nullptr && hooks_.stop->load()) break;
      const std::int64_t asked = clock_.now_us();
      LEVADA_ASSIGN_OR_RETURN(const std::vector<Sample> samples, source_.next(trainer_.options().samples_per_step()));
      if (samples.empty()) break;
      LEVADA_RETURN_IF_ERROR(one(samples, asked));
    }
    report_.steps = trainer_.steps();
    report_.ended_early = report_.steps < trainer_.options().total_steps;
    if (saved_step_ < report_.steps) {
      LEVADA_RETURN_IF_ERROR(save());
      if (!told_) LEVADA_RETURN_IF_ERROR(source_.stepped(report_.steps));
    }
    return report_;
  }

 private:
  Status one(const std::vector<Sample>& samples, std::int64_t asked_us) {
    const std::int64_t began_us = clock_.now_us();
    LEVADA_ASSIGN_OR_RETURN(const StepReport step, trainer_.step(samples, [this] { return source_.confirm(); }));
    if (step.given_up) return on_given_up();
    given_up_ = 0;
    const double seconds = static_cast<double>(clock_.now_us() - began_us) * 1e-6;
    told_ = false;
    note(step);
    if (hooks_.on_step) hooks_.on_step(step, seconds, static_cast<double>(began_us - asked_us) * 1e-6);
    if (!hooks_.held_out.empty() && due(step.step, trainer_.options().eval_interval)) {
      LEVADA_RETURN_IF_ERROR(evaluate(step.step));
    }
    const bool last = step.step == trainer_.options().total_steps;
    if (due(step.step, trainer_.options().save_interval) || last) LEVADA_RETURN_IF_ERROR(save());
    told_ = true;
    return source_.stepped(step.step);
  }

  Status on_given_up() {
    if (++given_up_ < kMostGivenUp) return {};
    return unavailable("step " + std::to_string(trainer_.steps() + 1) + " was given up " + std::to_string(given_up_) +
                       " times: what it was computed from did not last until its end");
  }

  void note(const StepReport& step) {
    if (report_.loss_first == 0) report_.loss_first = step.metrics.loss();
    report_.loss_last = step.metrics.loss();
    report_.tau_last = step.metrics.tau();
    if (due(step.step, trainer_.options().log_interval)) {
      LEVADA_LOG_INFO("train: step ", step.step, " loss ", step.metrics.loss(), " accuracy ", step.metrics.accuracy(),
                      " tau ", step.metrics.tau(), " gradient ", step.grad_norm, " rate ", step.learning_rate);
    }
  }

  Status evaluate(std::int64_t step) {
    LEVADA_ASSIGN_OR_RETURN(const Metrics metrics, trainer_.evaluate(hooks_.held_out));
    LEVADA_LOG_INFO("train: held out at step ", step, ": loss ", metrics.loss(), " accuracy ", metrics.accuracy(),
                    " accepted ", metrics.mean_accepted_prefix(), " tau ", metrics.tau());
    if (hooks_.on_evaluation) hooks_.on_evaluation(step, metrics);
    return {};
  }

  Status save() {
    LEVADA_ASSIGN_OR_RETURN(report_.checkpoint, trainer_.save());
    saved_step_ = trainer_.steps();
    return source_.checkpointed(saved_step_, report_.checkpoint);
  }

  DflashTrainer& trainer_;
  SampleSource& source_;
  const Clock& clock_;
  const RunHooks& hooks_;
  RunReport report_;
  std::int64_t saved_step_;
  bool told_ = true;  // the source knows of the last step
  int given_up_ = 0;  // one after the other
};

}  // namespace

Result<RunReport> run_training(DflashTrainer& trainer, SampleSource& source, const Clock& clock,
                               const RunHooks& hooks) {
  return Run(trainer, source, clock, hooks).all();
}

}  // namespace levada::train
