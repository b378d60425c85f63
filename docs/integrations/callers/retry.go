// Gets a URL and comes back only if that does no harm: after the time asked, apart from others, within a budget.
package main

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const retries, wait, capped = 3, 100 * time.Millisecond, 30 * time.Second

var (
	mutex  sync.Mutex
	budget = 10.0 // retries: a request adds a tenth
)

func pay(change float64) bool {
	mutex.Lock()
	defer mutex.Unlock()
	if budget+change < 0 {
		return false
	}
	budget = math.Min(budget+change, 10)
	return true
}

func get(ctx context.Context, url string) (*http.Response, error) {
	pay(0.1)
	for attempt := 1; ; attempt++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("x-plimsoll-attempt", strconv.Itoa(attempt))
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != 429 && response.StatusCode != 503 || attempt > retries {
			return response, err
		}
		seconds, _ := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 31)
		asked := time.Duration(seconds) * time.Second
		pause := asked + time.Duration(rand.Float64()*math.Max(float64(asked), float64(wait<<attempt)))
		ends, hasDeadline := ctx.Deadline()
		isLate := pause > capped || hasDeadline && time.Until(ends) < pause
		if response.Header.Get("X-RateLimit-Reason") == "tenant_quota_exceeded" || isLate || !pay(-1) {
			return response, nil
		}
		response.Body.Close()
		time.Sleep(pause)
	}
}

func main() { // go run retry.go URL
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	response, err := get(ctx, os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(response.StatusCode)
}
