// Asks a Plimsoll sidecar about each request. Without an answer in 50 ms the request is served.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

var client = http.Client{Timeout: 50 * time.Millisecond}

func isAllowed(sidecar, bucket, tenant string) bool {
	body, _ := json.Marshal(map[string]string{"bucket": bucket, "tenant": tenant})
	response, err := client.Post(sidecar+"/v1/check", "application/json", bytes.NewReader(body))
	if err != nil {
		return true
	}
	defer response.Body.Close()
	var answer struct{ Allowed bool }
	err = json.NewDecoder(response.Body).Decode(&answer)
	return err != nil || response.StatusCode != http.StatusOK || answer.Allowed
}

func main() { // go run check.go PORT BUCKET TENANT
	if isAllowed("http://127.0.0.1:"+os.Args[1], os.Args[2], os.Args[3]) {
		fmt.Println("allowed")
	} else {
		fmt.Println("refused")
	}
}
