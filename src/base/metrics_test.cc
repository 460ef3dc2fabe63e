#include "base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/thread.h"

namespace levada {
namespace {

using testing::HasSubstr;

TEST(Metrics, render_as_prometheus_text_with_the_common_labels) {
  Metrics metrics(Metrics::Labels{{"model_name", "smollm2"}});
  metrics.counter("levada:requests_total", "Requests.", {{"path", "/generate"}}).add(3);
  metrics.gauge("sglang:num_running_reqs", "Running requests.").set(2.5);
  Histogram& histogram = metrics.histogram("sglang:ttft_seconds", "Time to first token.", {0.1, 1});
  for (const double seconds : {0.05, 0.5, 7.0}) histogram.observe(seconds);

  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("# HELP levada:requests_total Requests.\n# TYPE levada:requests_total counter\n"
                              "levada:requests_total{model_name=\"smollm2\",path=\"/generate\"} 3"));
  EXPECT_THAT(text, HasSubstr("sglang:num_running_reqs{model_name=\"smollm2\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("sglang:ttft_seconds_bucket{model_name=\"smollm2\",le=\"1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("sglang:ttft_seconds_bucket{model_name=\"smollm2\",le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("sglang:ttft_seconds_count{model_name=\"smollm2\"} 3\n"));
}

TEST(Metrics, the_same_name_and_labels_give_the_same_object) {
  Metrics metrics;
  Counter& get = metrics.counter("levada:x", "X.", {{"method", "GET"}});
  EXPECT_EQ(&metrics.counter("levada:x", "X.", {{"method", "GET"}}), &get);
  EXPECT_NE(&metrics.counter("levada:x", "X.", {{"method", "PUT"}}), &get);
}

TEST(Metrics, may_be_updated_from_any_thread) {
  Metrics metrics;
  {
    std::array<Thread, 4> threads;
    for (Thread& thread : threads)
      thread = Thread("counting", [&] {
        for (int i = 0; i < 1000; ++i) metrics.counter("levada:x", "X.").add();
        metrics.render();
      });
  }
  EXPECT_EQ(metrics.counter("levada:x", "X.").value(), 4000);
}

TEST(MetricsDeath, one_name_has_one_type_and_one_help_text) {
  Metrics metrics;
  metrics.counter("levada:x", "X.");
  EXPECT_DEATH(metrics.gauge("levada:x", "X."), "two types");
  EXPECT_DEATH(metrics.counter("levada:x", "Y."), "two help texts");
}

}  // namespace
}  // namespace levada
